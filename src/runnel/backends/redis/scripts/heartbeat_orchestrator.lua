-- Registers a heartbeat of an orchestrator.
-- ARGV: orchestrator, the archive that it writes to ('' for none)
-- Returns all orchestrators, each followed by the number of its last heartbeat; an empty list if
-- the store is paired with another archive.
local orchestrators, heartbeat_counter, layout = unpack(KEYS)
local orchestrator, archive = unpack(ARGV)

if has_other_archive(layout, archive) then
  return {}
end
redis.call('HSET', orchestrators, orchestrator, redis.call('INCR', heartbeat_counter))
return redis.call('HGETALL', orchestrators)
