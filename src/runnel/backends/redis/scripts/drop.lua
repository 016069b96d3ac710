-- Drops tasks that are not to be run any more.
-- KEYS  1 partition  2 out, and the prefixes 3 tasks  4 held  5 dropped
-- ARGV  1 epoch  2 nonce, then tokens
-- Returns {1}, or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
drop_tasks(KEYS[2], KEYS[3], KEYS[4], KEYS[5], tail(ARGV, 3))
return {1}
