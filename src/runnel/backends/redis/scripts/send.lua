-- Puts messages into inboxes; an execution that one of them makes is listed from then on.
-- KEYS  1 headers  2 listed  3 ids  4 keys of blobs, the prefixes 5 inbox  6 blob, 7 the feed,
--       8 the prefix of definitions  9 deleted versions
-- ARGV  1 the latest time on the server's clock ('' for any)  2 how many definitions have to be
--       stored, then of each: hash, name; how many blobs, then of each: key, data; then of each
--       message: partition, message, and of an execution that it makes (or '' each): id, header,
--       created_at
-- Returns 1, 0 when it came too late, and -1 for the first definition that is not stored, and so on.
if ARGV[1] ~= '' then
  local time = redis.call('TIME')
  if tonumber(time[1]) + tonumber(time[2]) / 1e6 > tonumber(ARGV[1]) then
    return 0
  end
end
local blobs = 3 + 2 * tonumber(ARGV[2])
for at = 3, blobs - 1, 2 do
  local version = tonumber(redis.call('HGET', KEYS[8] .. ARGV[at], 'version') or 0)
  if version <= tonumber(redis.call('HGET', KEYS[9], ARGV[at + 1]) or 0) then
    return (1 - at) / 2
  end
end
local first = blobs + 1 + 2 * tonumber(ARGV[blobs])
for at = blobs + 1, first - 1, 2 do
  redis.call('ZADD', KEYS[4], 0, ARGV[at])
  redis.call('SET', KEYS[6] .. ARGV[at], ARGV[at + 1])
end
local made = {}
for at = first, #ARGV, 5 do
  redis.call('XADD', KEYS[5] .. ARGV[at], '*', 'm', ARGV[at + 1])
  local id = ARGV[at + 2]
  if id ~= '' and redis.call('HSETNX', KEYS[1], id, ARGV[at + 3]) == 1 then
    redis.call('ZADD', KEYS[2], ARGV[at + 4], id)
    redis.call('ZADD', KEYS[3], 0, id)
    made[#made + 1] = id
  end
end
tell_pending(KEYS[7], made)
return 1
