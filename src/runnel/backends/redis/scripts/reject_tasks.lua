-- Fails tasks that have waited in a queue for too long: deletes them from the queue and reports them
-- as TaskFailed.
-- ARGV: queue, the minimum wait in milliseconds, the maximum number of tasks, the text of the message
-- TaskFailed before its token, the text after its token. Returns the number of failed tasks.
local task_prefix, lane_prefix, task_locations, inbox_prefix = unpack(KEYS)
local queue, waiting_ms, limit, failed_before, failed_after = unpack(ARGV)

local time = redis.call('TIME')
local issued_before = time[1] * 1000 + math.floor(time[2] / 1000) - tonumber(waiting_ms)
if issued_before < 0 then
  return 0
end
local tokens = {}
local entries = redis.call(
  'XRANGE', task_prefix .. queue, '-', string.format('%.0f', issued_before), 'COUNT', limit)
for number, entry in ipairs(entries) do
  local token, partition = entry[2][2], entry[2][4]
  tokens[number] = token
  remove_queued(task_prefix, lane_prefix, queue, entry[1], entry[2])
  redis.call('XADD', inbox_prefix .. partition, '*', 'm', failed_before .. token .. failed_after)
end
call_many('HDEL', task_locations, tokens)
return #tokens
