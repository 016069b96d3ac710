-- The partition has all that the archive has: its commits go on behind this sequence.
-- KEYS  1 partition
-- ARGV  1 epoch  2 nonce  3 sequence  4 the life of the server
-- Returns {1}, or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
redis.call('HSET', KEYS[1], 'sequence', ARGV[3], 'verified', ARGV[4])
return {1}
