-- Asks a worker to drain. The worker receives the request with the reply to its next heartbeat.
-- Returns 1, or 0 if the worker is not listed.
local workers, drained = unpack(KEYS)
local worker = ARGV[1]

if redis.call('HEXISTS', workers, worker) == 0 then
  return 0
end
redis.call('SADD', drained, worker)
return 1
