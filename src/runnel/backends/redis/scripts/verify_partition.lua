-- Records that the partition has exactly the state of the archive. The next commit follows the
-- given sequence.
-- ARGV: epoch, nonce, sequence, the run id of the server, '1' if the journal was not written for
-- this archive, the feed entry that marks a gap for readers ('' if they missed nothing).
-- Returns {1}, or {0, the current epoch} if the lease is lost.
local partition, journal, feed = unpack(KEYS)
local epoch, nonce, sequence, run_id, is_foreign_journal, gap_entry = unpack(ARGV)

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] ~= epoch or current[2] ~= nonce then
  return {0, current[1] or '0'}
end
if is_foreign_journal == '1' then
  redis.call('DEL', journal)
end
if gap_entry ~= '' then
  add_feed_entry(feed, gap_entry)
end
redis.call('HSET', partition, 'sequence', sequence, 'verified', run_id, 'life', epoch)
return {1}
