-- Drops tasks that must not run any more.
-- ARGV: epoch, nonce, then tokens
-- Returns {1}, or {0, the current epoch} if the lease is lost.
local partition, task_locations, task_prefix, lane_prefix, arrival_prefix, held_prefix,
  dropped_prefix = unpack(KEYS)
local epoch, nonce = ARGV[1], ARGV[2]

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] ~= epoch or current[2] ~= nonce then
  return {0, current[1] or '0'}
end
drop_tasks(
  task_locations, task_prefix, lane_prefix, arrival_prefix, held_prefix, dropped_prefix,
  tail(ARGV, 3))
return {1}
