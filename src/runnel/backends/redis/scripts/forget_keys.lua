-- Removes all concurrency keys of a partition, before those that the archive has are restored.
-- KEYS  1 partition  2 its concurrency keys, and the prefix 3 history
-- ARGV  1 epoch  2 nonce  3 how the id of a concurrency key begins
-- Returns {1}, or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
for _, key in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  redis.call('DEL', KEYS[3] .. ARGV[3] .. key)
end
redis.call('DEL', KEYS[2])
return {1}
