-- Every worker, with its last sign of life, how many tasks it holds and what it says of itself.
-- KEYS  1 workers  2 about  3 dead, and the prefix 4 held
-- ARGV  1 '1' for the dead ones, too
-- Returns {now, {{worker, sign, held, about}...}, {{worker, about}...}}: the dead, last one first.
local records, living, dead = redis.call('HGETALL', KEYS[1]), {}, {}
for at = 1, #records, 2 do
  local worker = records[at]
  local about = redis.call('HGET', KEYS[2], worker) or ''
  living[#living + 1] = {worker, records[at + 1], redis.call('HLEN', KEYS[4] .. worker), about}
end
if ARGV[1] == '1' then
  for _, entry in ipairs(redis.call('XREVRANGE', KEYS[3], '+', '-')) do
    dead[#dead + 1] = {entry[2][2], entry[2][4]}
  end
end
return {redis.call('TIME')[1], living, dead}
