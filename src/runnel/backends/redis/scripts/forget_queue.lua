-- Removes an empty queue that has received no task since it was inspected.
-- ARGV: queue, the id of its last entry at the inspection
-- Returns 1, or 0 if a task has arrived since the inspection.
local queues, tasks, turns, lane_prefix = unpack(KEYS)
local queue, inspected_entry = unpack(ARGV)

if redis.call('XLEN', tasks) > 0 or last_entry(tasks) ~= inspected_entry then
  return 0
end
redis.call('SREM', queues, queue)
for _, lane in ipairs(redis.call('ZRANGE', turns, 0, -1)) do
  redis.call('DEL', lane_key(lane_prefix, queue, lane))
end
redis.call('DEL', tasks, turns)
return 1
