-- The start check: which of these tasks does the worker still hold? They count as started.
-- KEYS  1 held by this worker
-- ARGV  tokens
-- Returns 1 or 0 for each.
local answers, started = {}, {}
for number, value in ipairs(get_many(KEYS[1], ARGV)) do
  answers[number] = value and 1 or 0
  if value then
    local partition, _, missed = parse_held(value)
    started[#started + 1] = ARGV[number]
    started[#started + 1] = partition .. ' 1' .. missed
  end
end
call_many('HSET', KEYS[1], started)
return answers
