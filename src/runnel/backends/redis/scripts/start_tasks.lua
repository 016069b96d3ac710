-- Marks those of the given tasks as started that are still assigned to the worker and not stopped.
-- ARGV: the worker if it stops waiting for pushed tasks, or '' if not; 1, or 0 if the tasks run in
-- child processes and so can't kill the worker; then tokens
-- Returns 1 or 0 for each token; 0 if the task must not run.
local held_tasks, waiting = unpack(KEYS)
local waiting_worker, started_flag = ARGV[1], ARGV[2]

if waiting_worker ~= '' then
  redis.call('HDEL', waiting, waiting_worker)
end
local tokens, is_held, started = tail(ARGV, 3), {}, {}
for number, value in ipairs(get_many(held_tasks, tokens)) do
  local partition, state, missed = parse_held(value or '')
  local may_start = partition and not is_stopping(state)
  is_held[number] = may_start and 1 or 0
  -- A task that runs in a child process no longer counts as started, also while it stops.
  if may_start or (partition and started_flag == '0') then
    local new_state = may_start and started_flag or STOPPED_STATES['0']
    started[#started + 1] = tokens[number]
    started[#started + 1] = partition .. ' ' .. new_state .. missed
  end
end
call_many('HSET', held_tasks, started)
return is_held
