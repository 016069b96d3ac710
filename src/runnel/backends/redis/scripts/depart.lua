-- An orchestrator ends, or is dead.
-- KEYS  1 orchestrators
-- ARGV  1 orchestrator  2 its sign of life that was judged ('' when it says so itself)
if ARGV[2] == '' or redis.call('HGET', KEYS[1], ARGV[1]) == ARGV[2] then
  redis.call('HDEL', KEYS[1], ARGV[1])
end
return 1
