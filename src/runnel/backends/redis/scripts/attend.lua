-- An orchestrator lives.
-- KEYS  1 orchestrators  2 signs
-- ARGV  1 orchestrator
-- Returns {orchestrator, its last sign...} of all.
redis.call('HSET', KEYS[1], ARGV[1], redis.call('INCR', KEYS[2]))
return redis.call('HGETALL', KEYS[1])
