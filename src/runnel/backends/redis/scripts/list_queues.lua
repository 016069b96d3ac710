-- Lists all queues.
-- Returns {{queue, number of waiting tasks, milliseconds that the oldest task has waited}...}.
local queues, task_prefix, arrival_prefix = unpack(KEYS)

local now, records = server_time_ms(), {}
for _, queue in ipairs(redis.call('SMEMBERS', queues)) do
  local stream, arrivals = task_prefix .. queue, arrival_prefix .. queue
  local oldest = tonumber(redis.call('ZRANGE', arrivals, 0, 0, 'WITHSCORES')[2]) or now
  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  if first then
    oldest = math.min(oldest, tonumber(string.match(first[1], '^%d+')))
  end
  records[#records + 1] = {
    queue, redis.call('ZCARD', arrivals) + redis.call('XLEN', stream), math.max(0, now - oldest)}
end
return records
