-- Fails tasks that have waited in a queue for too long: out of their stream, and reported.
-- KEYS  1 tasks of this queue  2 out, and the prefix 3 inbox
-- ARGV  1 how long at least, in milliseconds  2 how many at most
--       3 TaskFailed up to its token  4 its rest
-- Returns how many.
local time = redis.call('TIME')
local before = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(ARGV[1])
if before < 0 then
  return 0
end
local ids, tokens = {}, {}
local entries = redis.call(
  'XRANGE', KEYS[1], '-', string.format('%.0f', before), 'COUNT', ARGV[2])
for number, entry in ipairs(entries) do
  local fields = entry[2]
  ids[number], tokens[number] = entry[1], fields[2]
  redis.call('XADD', KEYS[3] .. fields[4], '*', 'm', ARGV[3] .. fields[2] .. ARGV[4])
end
call_many('XDEL', KEYS[1], ids)
call_many('HDEL', KEYS[2], tokens)
return #ids
