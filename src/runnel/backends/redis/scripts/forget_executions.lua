-- Removes executions with their blobs.
-- KEYS: the keys of the function forget_executions; the first key is the partition.
-- ARGV: epoch, nonce, then ids
-- Returns {1}, or {0, the current epoch} if the lease is lost.
local partition = KEYS[1]
local epoch, nonce = ARGV[1], ARGV[2]

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] ~= epoch or current[2] ~= nonce then
  return {0, current[1] or '0'}
end
forget_executions(KEYS, tail(ARGV, 3))
return {1}
