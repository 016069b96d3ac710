-- Returns the due timers of a partition to its current owner.
-- ARGV: epoch, nonce, now ('+inf' for all timers), the maximum number of timers
-- Returns {1, {key, due, key, due...}, {attempt...}}, or {0, the current epoch} if the lease is
-- lost.
local partition, timers, attempts = unpack(KEYS)
local epoch, nonce, now, limit = unpack(ARGV)

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] ~= epoch or current[2] ~= nonce then
  return {0, current[1] or '0'}
end
local due = redis.call('ZRANGEBYSCORE', timers, '-inf', now, 'WITHSCORES', 'LIMIT', 0, limit)
local keys = {}
for at = 1, #due, 2 do
  keys[#keys + 1] = due[at]
end
return {1, due, get_many(attempts, keys)}
