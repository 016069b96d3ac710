-- The layout of a store with an archive: as it is stored, or as the archive has it.
-- KEYS  1 layout, and the prefix 2 partition
-- ARGV  1 shards  2 partitions  3 incarnation  4 a name for the store  5 the name that this replaces, if any
-- Returns {shards, partitions, incarnation, name}; an empty list for a store that was used without
-- an archive. One of another archive is left as it is.
if redis.call('HEXISTS', KEYS[1], 'incarnation') == 0 then
  local count = tonumber(redis.call('HGET', KEYS[1], 'partitions') or '0')
  for number = 0, count - 1 do
    if redis.call('HEXISTS', KEYS[2] .. number, 'sequence') == 1 then
      return {}
    end
  end
  redis.call(
    'HSET', KEYS[1], 'shards', ARGV[1], 'partitions', ARGV[2], 'incarnation', ARGV[3])
end
if redis.call('HGET', KEYS[1], 'incarnation') == ARGV[3] then
  local name = redis.call('HGET', KEYS[1], 'identity')
  if not name or name == ARGV[5] then
    redis.call('HSET', KEYS[1], 'identity', ARGV[4])
  end
end
return redis.call('HMGET', KEYS[1], 'shards', 'partitions', 'incarnation', 'identity')
