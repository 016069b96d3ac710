-- Puts messages into the inbox of a partition again, for its current owner.
-- ARGV: epoch, nonce, then messages
-- Returns {1}, or {0, the current epoch} if the lease is lost.
local partition, inbox = unpack(KEYS)
local epoch, nonce = ARGV[1], ARGV[2]

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] ~= epoch or current[2] ~= nonce then
  return {0, current[1] or '0'}
end
for at = 3, #ARGV do
  redis.call('XADD', inbox, '*', 'm', ARGV[at])
end
return {1}
