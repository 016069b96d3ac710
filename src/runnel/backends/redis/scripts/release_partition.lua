-- Releases a partition if the lease is still held.
local partition = KEYS[1]
local epoch, nonce = unpack(ARGV)

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] == epoch and current[2] == nonce then
  redis.call('HDEL', partition, 'owner', 'nonce')
end
return 1
