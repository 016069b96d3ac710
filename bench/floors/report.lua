-- The floor of a report: it accepts reports of tasks that the worker holds, and removes them.
-- KEYS  1 held by this worker  2 out  3 inbox
-- ARGV  per task: token, message
local tokens = {}
for at = 1, #ARGV, 2 do
  tokens[#tokens + 1] = ARGV[at]
end
for number, value in ipairs(redis.call('HMGET', KEYS[1], unpack(tokens))) do
  if value then
    redis.call('XADD', KEYS[3], '*', 'm', ARGV[2 * number])
  end
end
redis.call('HDEL', KEYS[1], unpack(tokens))
redis.call('HDEL', KEYS[2], unpack(tokens))
return 1
