-- Returns the layout of a store with an archive. First stores the layout of the archive in an empty
-- store.
-- ARGV: shards, partitions, incarnation (the name of the archive), the new name for the store, the
-- name to replace ('' for a store without a name), '1' to replace that name; then for each inbox
-- with messages that the archive has recorded: the partition, the id of the last recorded message.
-- Returns {shards, partitions, incarnation, name}; an empty list for a store that was used without
-- an archive; 2 if an inbox has messages that are not recorded. A store of another archive is not
-- changed.
local layout, partition_prefix, inbox_prefix = unpack(KEYS)
local shards, partitions, incarnation, new_name, replaced_name, replaces_name =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'

if redis.call('HEXISTS', layout, 'incarnation') == 0 then
  local recorded = {}
  for at = 7, #ARGV, 2 do
    recorded[tonumber(ARGV[at])] = ARGV[at + 1]
  end
  local count = tonumber(redis.call('HGET', layout, 'partitions') or '0')
  for number = 0, count - 1 do
    if redis.call('HEXISTS', partition_prefix .. number, 'sequence') == 1 then
      return {}
    end
  end
  for number = 0, count - 1 do
    local last = redis.call('XREVRANGE', inbox_prefix .. number, '+', '-', 'COUNT', 1)
    if #last > 0 and last[1][1] ~= recorded[number] then
      return 2
    end
  end
  for number, _ in pairs(recorded) do
    redis.call('DEL', inbox_prefix .. number)
  end
  -- Without this step, the current owners would continue without the archive.
  for number = 0, count - 1 do
    redis.call('HDEL', partition_prefix .. number, 'owner', 'nonce')
  end
  redis.call('HSET', layout, 'shards', shards, 'partitions', partitions, 'incarnation', incarnation)
end
if redis.call('HGET', layout, 'incarnation') == incarnation then
  local name = redis.call('HGET', layout, 'identity')
  if not name or (replaces_name and name == replaced_name) then
    redis.call('HSET', layout, 'identity', new_name)
  end
end
return redis.call('HMGET', layout, 'shards', 'partitions', 'incarnation', 'identity')
