-- The layout of a store with an archive: as it is stored, or as the archive has it.
-- KEYS  1 layout, and the prefixes 2 partition  3 inbox
-- ARGV  1 shards  2 partitions  3 incarnation  4 a name for the store  5 the name that this replaces
--       ('' for none), if 6 is '1'; then, of each inbox with messages that the archive has:
--       its partition, the last of them
-- Returns {shards, partitions, incarnation, name}; an empty list for a store that was used without
-- an archive; 2 for one in whose inboxes is more. One of another archive is left as it is.
if redis.call('HEXISTS', KEYS[1], 'incarnation') == 0 then
  local recorded = {}
  for at = 7, #ARGV, 2 do
    recorded[tonumber(ARGV[at])] = ARGV[at + 1]
  end
  local count = tonumber(redis.call('HGET', KEYS[1], 'partitions') or '0')
  for number = 0, count - 1 do
    if redis.call('HEXISTS', KEYS[2] .. number, 'sequence') == 1 then
      return {}
    end
  end
  for number = 0, count - 1 do
    local last = redis.call('XREVRANGE', KEYS[3] .. number, '+', '-', 'COUNT', 1)
    if #last > 0 and last[1][1] ~= recorded[number] then
      return 2
    end
  end
  for number, _ in pairs(recorded) do
    redis.call('DEL', KEYS[3] .. number)
  end
  -- Who owns a partition by now would go on without the archive.
  for number = 0, count - 1 do
    redis.call('HDEL', KEYS[2] .. number, 'owner', 'nonce')
  end
  redis.call(
    'HSET', KEYS[1], 'shards', ARGV[1], 'partitions', ARGV[2], 'incarnation', ARGV[3])
end
if redis.call('HGET', KEYS[1], 'incarnation') == ARGV[3] then
  local name = redis.call('HGET', KEYS[1], 'identity')
  if not name or (ARGV[6] == '1' and name == ARGV[5]) then
    redis.call('HSET', KEYS[1], 'identity', ARGV[4])
  end
end
return redis.call('HMGET', KEYS[1], 'shards', 'partitions', 'incarnation', 'identity')
