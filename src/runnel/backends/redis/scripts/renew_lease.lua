-- Increments the counter of the current lease.
-- Returns {1}, or {0, the current epoch} if the lease is lost.
local partition = KEYS[1]
local epoch, nonce = unpack(ARGV)

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] ~= epoch or current[2] ~= nonce then
  return {0, current[1] or '0'}
end
redis.call('HINCRBY', partition, 'counter', 1)
return {1}
