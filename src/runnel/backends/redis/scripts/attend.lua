-- An orchestrator lives.
-- KEYS  1 orchestrators  2 signs  3 layout
-- ARGV  1 orchestrator  2 the archive that it writes for ('' for none)
-- Returns {orchestrator, its last sign...} of all; nothing when the store has another archive.
if has_other_archive(KEYS[3], ARGV[2]) then
  return {}
end
redis.call('HSET', KEYS[1], ARGV[1], redis.call('INCR', KEYS[2]))
return redis.call('HGETALL', KEYS[1])
