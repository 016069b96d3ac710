-- Acknowledges tasks and puts their reports into the inboxes of their partitions.
-- KEYS  1 held by this worker  2 out, and the prefix 3 inbox
-- ARGV  of each report: token, '1' if it ends the task, message
-- Returns 1 or 0 for each: 0 when the worker does not hold the task.
local tokens = {}
for at = 1, #ARGV, 3 do
  tokens[#tokens + 1] = ARGV[at]
end
local answers, ended, is_over = {}, {}, {}
for number, value in ipairs(get_many(KEYS[1], tokens)) do
  local token, at = tokens[number], number * 3 - 2
  answers[number] = 0
  if value and not is_over[token] then
    answers[number] = 1
    redis.call('XADD', KEYS[3] .. parse_held(value), '*', 'm', ARGV[at + 2])
    if ARGV[at + 1] == '1' then
      is_over[token] = true
      ended[#ended + 1] = token
    end
  end
end
call_many('HDEL', KEYS[1], ended)
call_many('HDEL', KEYS[2], ended)
return answers
