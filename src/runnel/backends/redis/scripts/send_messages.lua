-- Puts messages into inboxes. Also stores the header of each execution that a message creates, so
-- that lists show it.
-- ARGV: the deadline on the server's clock ('' for none); the number of required definitions, then
-- for each its hash and name; the number of blobs, then for each its key and data; then for each
-- message: partition, message, and id, header and created_at of the execution that the message
-- creates (or '' three times).
-- Returns 1; 0 after the deadline; -n if the n-th required definition is not stored.
local headers, ids_by_created_at, ids, blob_keys, inbox_prefix, blob_prefix, feed,
  definition_prefix, deleted_versions = unpack(KEYS)
local deadline = ARGV[1]

if deadline ~= '' then
  local time = redis.call('TIME')
  if tonumber(time[1]) + tonumber(time[2]) / 1e6 > tonumber(deadline) then
    return 0
  end
end
local blobs_at = 3 + 2 * tonumber(ARGV[2])
for at = 3, blobs_at - 1, 2 do
  local hash, name = ARGV[at], ARGV[at + 1]
  local version = tonumber(redis.call('HGET', definition_prefix .. hash, 'version') or 0)
  if version <= tonumber(redis.call('HGET', deleted_versions, name) or 0) then
    return (1 - at) / 2
  end
end
local messages_at = blobs_at + 1 + 2 * tonumber(ARGV[blobs_at])
for at = blobs_at + 1, messages_at - 1, 2 do
  local key, data = ARGV[at], ARGV[at + 1]
  redis.call('ZADD', blob_keys, 0, key)
  redis.call('SET', blob_prefix .. key, data)
end
local created = {}
for at = messages_at, #ARGV, 5 do
  local partition, message, id, header, created_at =
    ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  redis.call('XADD', inbox_prefix .. partition, '*', 'm', message)
  if id ~= '' and redis.call('HSETNX', headers, id, header) == 1 then
    redis.call('ZADD', ids_by_created_at, created_at, id)
    redis.call('ZADD', ids, 0, id)
    created[#created + 1] = id
  end
end
add_pending_entries(feed, created)
return 1
