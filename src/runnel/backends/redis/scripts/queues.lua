-- Every queue: how many tasks wait in it, since when the first does, which was the last.
-- KEYS  1 queues, and the prefix 2 tasks
-- Returns {{queue, depth, milliseconds that the first has waited, last entry}...}.
local time, found = redis.call('TIME'), {}
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, queue in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local key, waits = KEYS[2] .. queue, 0
  local first = redis.call('XRANGE', key, '-', '+', 'COUNT', 1)[1]
  if first then
    waits = math.max(0, now - tonumber(string.match(first[1], '^%d+')))
  end
  found[#found + 1] = {queue, redis.call('XLEN', key), waits, last_entry(key)}
end
return found
