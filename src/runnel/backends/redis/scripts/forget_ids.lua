-- Removes executions, with their blobs.
-- KEYS  1 partition  2 headers  3 listed  4 ids  5 final roots  6 final children  7 keys of blobs
--       8 its running executions, and the prefixes 9 history  10 blob
-- ARGV  1 epoch  2 nonce, then ids
-- Returns {1}, or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
forget_executions(KEYS, tail(ARGV, 3))
return {1}
