-- Acknowledges tasks and puts their reports into the inboxes of their partitions.
-- ARGV: for each report its token, '1' if it ends the task, and the message
-- Returns 1 or 0 for each report; 0 if the task is not assigned to the worker.
local held_tasks, task_locations, inbox_prefix = unpack(KEYS)

local tokens = {}
for at = 1, #ARGV, 3 do
  tokens[#tokens + 1] = ARGV[at]
end
local accepted, ended, is_ended = {}, {}, {}
for number, value in ipairs(get_many(held_tasks, tokens)) do
  local token, at = tokens[number], number * 3 - 2
  local ends_task, message = ARGV[at + 1] == '1', ARGV[at + 2]
  accepted[number] = 0
  if value and not is_ended[token] then
    accepted[number] = 1
    redis.call('XADD', inbox_prefix .. parse_held(value), '*', 'm', message)
    if ends_task then
      is_ended[token] = true
      ended[#ended + 1] = token
    end
  end
end
call_many('HDEL', held_tasks, ended)
call_many('HDEL', task_locations, ended)
return accepted
