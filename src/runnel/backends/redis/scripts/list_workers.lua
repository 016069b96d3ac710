-- Lists all workers.
-- ARGV: '1' to include dead workers
-- Returns {server time in seconds, {{worker, number of its last heartbeat, number of its tasks,
-- info}...}, {{dead worker, info}...}}. The worker that died last comes first.
local workers, worker_info, dead_workers, held_prefix = unpack(KEYS)
local includes_dead = ARGV[1] == '1'

local heartbeats, live, dead = redis.call('HGETALL', workers), {}, {}
for at = 1, #heartbeats, 2 do
  local worker, heartbeat = heartbeats[at], heartbeats[at + 1]
  local info = redis.call('HGET', worker_info, worker) or ''
  live[#live + 1] = {worker, heartbeat, redis.call('HLEN', held_prefix .. worker), info}
end
if includes_dead then
  for _, entry in ipairs(redis.call('XREVRANGE', dead_workers, '+', '-')) do
    dead[#dead + 1] = {entry[2][2], entry[2][4]}
  end
end
return {redis.call('TIME')[1], live, dead}
