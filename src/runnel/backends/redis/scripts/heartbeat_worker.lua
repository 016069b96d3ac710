-- Registers a heartbeat of a worker with the tasks that it holds. If a task of the worker is
-- missing from too many heartbeats in a row, the script reports the task as TaskLost.
-- ARGV: worker, the first entry of dropped tasks that the worker has not read ('' for none), the
-- number of missed heartbeats at which a task is lost, the text of the message TaskLost before its
-- token, the text after its token, the encoded WorkerInfo, '1' if the worker drains; then the
-- tokens of the tasks that the worker runs.
-- Returns {the argument numbers of the tokens that the worker must stop, 1 if the worker must drain}.
local workers, heartbeat_counter, held_tasks, task_locations, dropped, worker_info, drained,
  waiting, inbox_prefix = unpack(KEYS)
local worker, first_unread, missed_max, lost_before, lost_after, info, is_draining =
  ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6], ARGV[7] == '1'
local FIRST_TOKEN = 8

local listed = {}
for at = FIRST_TOKEN, #ARGV do
  listed[ARGV[at]] = true
end
redis.call('HSET', workers, worker, redis.call('INCR', heartbeat_counter))
redis.call('HSET', worker_info, worker, redis.call('TIME')[1] .. ' ' .. info)
if is_draining then
  -- A draining worker has cancelled its last claim and sends no further claim.
  redis.call('HDEL', waiting, worker)
end
if first_unread ~= '' then
  redis.call('XTRIM', dropped, 'MINID', '=', first_unread)
end

local held, lost, changed, is_held = redis.call('HGETALL', held_tasks), {}, {}, {}
for at = 1, #held, 2 do
  local token = held[at]
  local partition, started, missed = parse_held(held[at + 1])
  is_held[token] = not is_stopping(started)
  local now_missed = listed[token] and 0 or tonumber(missed) + 1
  if now_missed >= missed_max then
    redis.call('XADD', inbox_prefix .. partition, '*', 'm', lost_before .. token .. lost_after)
    lost[#lost + 1] = token
  elseif now_missed ~= tonumber(missed) then
    changed[#changed + 1] = token
    changed[#changed + 1] = partition .. ' ' .. started .. now_missed
  end
end
call_many('HSET', held_tasks, changed)
call_many('HDEL', held_tasks, lost)
call_many('HDEL', task_locations, lost)

local not_held = {}
for at = FIRST_TOKEN, #ARGV do
  if not is_held[ARGV[at]] then
    not_held[#not_held + 1] = at - FIRST_TOKEN + 1
  end
end
return {not_held, redis.call('SISMEMBER', drained, worker)}
