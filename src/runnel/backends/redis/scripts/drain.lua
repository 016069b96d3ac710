-- Tells a worker to end: its next beat says so.
-- KEYS  1 workers  2 drained
-- ARGV  1 worker
-- Returns 1, or 0 for one that is not listed.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('SADD', KEYS[2], ARGV[1])
return 1
