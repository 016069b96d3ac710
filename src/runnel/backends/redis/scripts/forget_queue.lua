-- Removes an empty queue. The next task of the queue adds the queue again.
-- ARGV: queue
-- Returns 1, or 0 if the queue has a task.
local queues, tasks, arrivals, turns = unpack(KEYS)
local queue = ARGV[1]

if redis.call('XLEN', tasks) > 0 or redis.call('EXISTS', arrivals) == 1 then
  return 0
end
redis.call('SREM', queues, queue)
redis.call('DEL', tasks, turns)
return 1
