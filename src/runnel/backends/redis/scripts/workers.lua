-- Every worker, with its last sign of life and how many tasks it holds.
-- KEYS  1 workers, and the prefix 2 held
local records, found = redis.call('HGETALL', KEYS[1]), {}
for at = 1, #records, 2 do
  local worker = records[at]
  found[#found + 1] = {worker, records[at + 1], redis.call('HLEN', KEYS[2] .. worker)}
end
return found
