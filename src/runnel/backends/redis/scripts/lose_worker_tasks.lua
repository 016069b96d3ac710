-- Removes a worker, and reports each task that it held as TaskLost.
-- ARGV: worker, the number of the last known heartbeat ('' if the worker shuts down regularly), the
-- text of the message TaskLost before its token, the text after its token for the only started
-- task, the text after its token for one of several started tasks, the text after its token for a
-- task that was not started, the number of dead workers to keep. Returns the number of lost tasks;
-- 0 if the worker has sent a heartbeat since then.
local workers, held_tasks, task_locations, dropped, worker_info, dead, drained, waiting,
  inbox_prefix = unpack(KEYS)
local worker, judged_heartbeat, lost_before, lost_alone, lost_together, lost_without_start,
  dead_max = unpack(ARGV)

if judged_heartbeat ~= '' and redis.call('HGET', workers, worker) ~= judged_heartbeat then
  return 0
end
local held, lost, started_count = redis.call('HGETALL', held_tasks), {}, 0
for at = 1, #held, 2 do
  local _, state = parse_held(held[at + 1])
  started_count = started_count + (has_started(state) and 1 or 0)
end
local lost_after_start = started_count == 1 and lost_alone or lost_together
for at = 1, #held, 2 do
  local token = held[at]
  local partition, state = parse_held(held[at + 1])
  local message_end = has_started(state) and lost_after_start or lost_without_start
  redis.call('XADD', inbox_prefix .. partition, '*', 'm', lost_before .. token .. message_end)
  lost[#lost + 1] = token
end
call_many('HDEL', task_locations, lost)
if judged_heartbeat ~= '' then
  local info = redis.call('HGET', worker_info, worker) or ''
  redis.call('XADD', dead, 'MAXLEN', dead_max, '*', 'w', worker, 'a', info)
end
redis.call('HDEL', workers, worker)
redis.call('HDEL', worker_info, worker)
redis.call('SREM', drained, worker)
redis.call('HDEL', waiting, worker)
redis.call('DEL', held_tasks, dropped)
return #lost
