-- Removes an orchestrator that shuts down, or that was declared dead and has sent no heartbeat
-- since then.
-- ARGV: orchestrator, the number of its last known heartbeat ('' if the orchestrator shuts down
-- regularly)
local orchestrators = KEYS[1]
local orchestrator, judged_heartbeat = unpack(ARGV)

if judged_heartbeat == ''
  or redis.call('HGET', orchestrators, orchestrator) == judged_heartbeat then
  redis.call('HDEL', orchestrators, orchestrator)
end
return 1
