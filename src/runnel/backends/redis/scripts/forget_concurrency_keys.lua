-- Removes all concurrency keys of a partition, before the archived concurrency keys are restored.
-- ARGV: epoch, nonce, the prefix of the aggregate id of a concurrency key
-- Returns {1}, or {0, the current epoch} if the lease is lost.
local partition, concurrency_keys, history_prefix = unpack(KEYS)
local epoch, nonce, limit_prefix = unpack(ARGV)

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] ~= epoch or current[2] ~= nonce then
  return {0, current[1] or '0'}
end
for _, key in ipairs(redis.call('SMEMBERS', concurrency_keys)) do
  redis.call('DEL', history_prefix .. limit_prefix .. key)
end
redis.call('DEL', concurrency_keys)
return {1}
