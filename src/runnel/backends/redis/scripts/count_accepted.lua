-- Counts the partitions that an owner has compared with the archive since the server started.
-- ARGV: the run id of the server
-- Returns {accepted partitions, partitions}. In a store without an archive, all are accepted.
local layout, partition_prefix = unpack(KEYS)
local run_id = ARGV[1]

local stored, incarnation = unpack(redis.call('HMGET', layout, 'partitions', 'incarnation'))
local count, accepted = tonumber(stored or '0'), 0
if not incarnation then
  return {count, count}
end
for number = 0, count - 1 do
  if redis.call('HGET', partition_prefix .. number, 'verified') == run_id then
    accepted = accepted + 1
  end
end
return {accepted, count}
