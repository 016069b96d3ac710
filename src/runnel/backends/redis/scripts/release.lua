-- Gives a partition back, if it still is this owner's.
-- KEYS  1 partition
-- ARGV  1 epoch  2 nonce
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] == ARGV[1] and now[2] == ARGV[2] then
  redis.call('HDEL', KEYS[1], 'owner', 'nonce')
end
return 1
