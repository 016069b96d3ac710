-- The partition has what the archive has, and nothing else: its commits go on behind this sequence.
-- KEYS  1 partition  2 its journal  3 the feed
-- ARGV  1 epoch  2 nonce  3 sequence  4 the life of the server  5 '1' if the journal is of another
--       6 what tells readers of the feed that they have missed something ('' if they have not)
-- Returns {1}, or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
if ARGV[5] == '1' then
  redis.call('DEL', KEYS[2])
end
if ARGV[6] ~= '' then
  tell_feed(KEYS[3], ARGV[6])
end
redis.call('HSET', KEYS[1], 'sequence', ARGV[3], 'verified', ARGV[4], 'life', ARGV[1])
return {1}
