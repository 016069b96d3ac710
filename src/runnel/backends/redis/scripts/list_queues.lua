-- Lists all queues.
-- Returns {{queue, number of waiting tasks, milliseconds that the first task has waited, id of the
-- last stream entry}...}.
local queues, task_prefix = unpack(KEYS)

local time, records = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, queue in ipairs(redis.call('SMEMBERS', queues)) do
  local tasks, waits_ms = task_prefix .. queue, 0
  local first = redis.call('XRANGE', tasks, '-', '+', 'COUNT', 1)[1]
  if first then
    waits_ms = math.max(0, now - tonumber(string.match(first[1], '^%d+')))
  end
  records[#records + 1] = {queue, redis.call('XLEN', tasks), waits_ms, last_entry(tasks)}
end
return records
