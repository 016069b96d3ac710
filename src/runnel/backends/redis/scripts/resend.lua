-- Puts messages into a partition's inbox again, for its current owner.
-- KEYS  1 partition  2 its inbox
-- ARGV  1 epoch  2 nonce, then messages
-- Returns {1}, or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
for at = 3, #ARGV do
  redis.call('XADD', KEYS[2], '*', 'm', ARGV[at])
end
return {1}
