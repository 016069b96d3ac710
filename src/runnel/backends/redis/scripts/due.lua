-- The timers of a partition that are due, for its current owner.
-- KEYS  1 partition  2 timers  3 attempts
-- ARGV  1 epoch  2 nonce  3 now ('+inf' for all)  4 how many at most
-- Returns {1, {key, due, key, due...}, {attempt...}}, or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
local found = redis.call(
  'ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[3], 'WITHSCORES', 'LIMIT', 0, ARGV[4])
local keys = {}
for at = 1, #found, 2 do
  keys[#keys + 1] = found[at]
end
return {1, found, get_many(KEYS[3], keys)}
