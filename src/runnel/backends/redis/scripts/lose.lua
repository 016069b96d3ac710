-- A worker is gone: it is forgotten, and whatever it held is lost.
-- KEYS  1 workers  2 held by this worker  3 out  4 dropped of this worker  5 about  6 dead
--       7 drained  8 waiting workers, and the prefix 9 inbox
-- ARGV  1 worker  2 its sign of life that was judged ('' when it said goodbye)
--       3 TaskLost up to its token  4 its rest if it was started  5 its rest if not
--       6 how many dead ones are kept in mind
-- Returns how many tasks were lost; none when it has given another sign since.
if ARGV[2] ~= '' and redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then
  return 0
end
local held, lost = redis.call('HGETALL', KEYS[2]), {}
for at = 1, #held, 2 do
  local partition, started = parse_held(held[at + 1])
  local rest = started == '1' and ARGV[4] or ARGV[5]
  redis.call('XADD', KEYS[9] .. partition, '*', 'm', ARGV[3] .. held[at] .. rest)
  lost[#lost + 1] = held[at]
end
call_many('HDEL', KEYS[3], lost)
if ARGV[2] ~= '' then
  local about = redis.call('HGET', KEYS[5], ARGV[1]) or ''
  redis.call('XADD', KEYS[6], 'MAXLEN', ARGV[6], '*', 'w', ARGV[1], 'a', about)
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[5], ARGV[1])
redis.call('SREM', KEYS[7], ARGV[1])
redis.call('HDEL', KEYS[8], ARGV[1])
redis.call('DEL', KEYS[2], KEYS[4])
return #lost
