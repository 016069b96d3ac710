-- A worker lives and names what it holds; what it misses twice is lost.
-- KEYS  1 workers  2 signs  3 held by this worker  4 out  5 dropped of this worker  6 about
--       7 drained  8 waiting workers, and the prefix 9 inbox
-- ARGV  1 worker  2 the first dropped entry it has not read ('' for all)  3 beats missed at most
--       4 TaskLost up to its token  5 its rest  6 what the worker says of itself
--       7 '1' if it drains; then the tokens that it holds
-- Returns {which of those, by number, it does not hold; 1 when it is to end}.
local listed = {}
for at = 8, #ARGV do
  listed[ARGV[at]] = at - 7
end
redis.call('HSET', KEYS[1], ARGV[1], redis.call('INCR', KEYS[2]))
redis.call('HSET', KEYS[6], ARGV[1], redis.call('TIME')[1] .. ' ' .. ARGV[6])
if ARGV[7] == '1' then
  redis.call('HDEL', KEYS[8], ARGV[1])  -- its last claim was given up, and no other one follows
end
if ARGV[2] ~= '' then
  redis.call('XTRIM', KEYS[5], 'MINID', '=', ARGV[2])
end

local held, lost, changed, is_held = redis.call('HGETALL', KEYS[3]), {}, {}, {}
for at = 1, #held, 2 do
  local token = held[at]
  local partition, started, missed = parse_held(held[at + 1])
  is_held[token] = true
  local now_missed = listed[token] and 0 or tonumber(missed) + 1
  if now_missed >= tonumber(ARGV[3]) then
    redis.call('XADD', KEYS[9] .. partition, '*', 'm', ARGV[4] .. token .. ARGV[5])
    lost[#lost + 1] = token
  elseif now_missed ~= tonumber(missed) then
    changed[#changed + 1] = token
    changed[#changed + 1] = partition .. ' ' .. started .. now_missed
  end
end
call_many('HSET', KEYS[3], changed)
call_many('HDEL', KEYS[3], lost)
call_many('HDEL', KEYS[4], lost)

local unknown = {}
for at = 8, #ARGV do
  if not is_held[ARGV[at]] then
    unknown[#unknown + 1] = at - 7
  end
end
return {unknown, redis.call('SISMEMBER', KEYS[7], ARGV[1])}
