-- Fails tasks that have waited in a queue for too long: deletes them from the stream and reports
-- them as TaskFailed.
-- ARGV: the minimum wait in milliseconds, the maximum number of tasks, the text of the message
-- TaskFailed before its token, the text after its token. Returns the number of failed tasks.
local tasks, task_locations, inbox_prefix = unpack(KEYS)
local waiting_ms, limit, failed_before, failed_after = unpack(ARGV)

local time = redis.call('TIME')
local issued_before = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(waiting_ms)
if issued_before < 0 then
  return 0
end
local ids, tokens = {}, {}
local entries = redis.call(
  'XRANGE', tasks, '-', string.format('%.0f', issued_before), 'COUNT', limit)
for number, entry in ipairs(entries) do
  local token, partition = entry[2][2], entry[2][4]
  ids[number], tokens[number] = entry[1], token
  redis.call('XADD', inbox_prefix .. partition, '*', 'm', failed_before .. token .. failed_after)
end
call_many('XDEL', tasks, ids)
call_many('HDEL', task_locations, tokens)
return #ids
