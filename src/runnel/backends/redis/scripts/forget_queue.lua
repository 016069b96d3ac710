-- Removes what is stored of a queue that is empty and has had no task since it was judged.
-- KEYS  1 queues  2 tasks of this queue
-- ARGV  1 queue  2 its last entry
-- Returns 1, or 0 when a task has come.
if redis.call('XLEN', KEYS[2]) > 0 or last_entry(KEYS[2]) ~= ARGV[2] then
  return 0
end
redis.call('SREM', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
