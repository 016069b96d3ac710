-- Moves the counter of a lease that is the current one.
-- KEYS  1 partition
-- ARGV  1 epoch  2 nonce
-- Returns {1}, or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
redis.call('HINCRBY', KEYS[1], 'counter', 1)
return {1}
