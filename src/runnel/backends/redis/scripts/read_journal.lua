-- Returns commits of a partition, unless a later owner has acquired it.
-- A released partition keeps its epoch: its last owner still archives the rest.
-- ARGV: epoch, nonce (not compared), the first entry id, the number of entries
-- Returns {1, entries}, or {0, the current epoch} if there is a later owner.
local partition, journal = unpack(KEYS)
local epoch, _, first, limit = unpack(ARGV)

local current = redis.call('HGET', partition, 'epoch')
if current ~= epoch then
  return {0, current or '0'}
end
return {1, redis.call('XRANGE', journal, first, '+', 'COUNT', limit)}
