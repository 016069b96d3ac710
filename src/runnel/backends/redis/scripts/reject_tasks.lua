-- Fails tasks that have waited in a queue for too long: deletes them from the queue and reports
-- them as TaskFailed.
-- ARGV: queue, the minimum wait in milliseconds, the maximum number of tasks, the text of the
-- message TaskFailed before its token, the text after its token.
-- Returns the number of failed tasks.
local task_prefix, lane_prefix, arrival_prefix, task_locations, inbox_prefix = unpack(KEYS)
local queue, waiting_ms, limit, failed_before, failed_after = unpack(ARGV)

local issued_before = server_time_ms() - tonumber(waiting_ms)
if issued_before < 0 then
  return 0
end
local latest = string.format('%.0f', issued_before)
local function report_failed(partition, token)
  redis.call('XADD', inbox_prefix .. partition, '*', 'm', failed_before .. token .. failed_after)
end

-- Tasks of earlier versions are in a stream.
local ids, tokens = {}, {}
for number, entry in ipairs(
  redis.call('XRANGE', task_prefix .. queue, '-', latest, 'COUNT', limit)) do
  local token, partition = entry[2][2], entry[2][4]
  ids[number], tokens[number] = entry[1], token
  report_failed(partition, token)
end
call_many('XDEL', task_prefix .. queue, ids)

local waiting = redis.call(
  'ZRANGEBYSCORE', arrival_prefix .. queue, '-inf', latest, 'LIMIT', 0, limit - #ids)
for number, location in ipairs(get_many(task_locations, waiting)) do
  local token = waiting[number]
  tokens[#tokens + 1] = token
  report_failed(remove_from_lane(lane_prefix, arrival_prefix, location, token), token)
end
call_many('HDEL', task_locations, tokens)
return #tokens
