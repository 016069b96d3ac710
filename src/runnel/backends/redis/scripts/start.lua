-- The start check: which of these tasks does the worker still hold? They count as started.
-- KEYS  1 held by this worker  2 waiting workers
-- ARGV  1 the worker, if it waits for no others then, else ''; then the tokens
-- Returns 1 or 0 for each.
if ARGV[1] ~= '' then
  redis.call('HDEL', KEYS[2], ARGV[1])
end
local tokens, answers, started = tail(ARGV, 2), {}, {}
for number, value in ipairs(get_many(KEYS[1], tokens)) do
  answers[number] = value and 1 or 0
  if value then
    local partition, _, missed = parse_held(value)
    started[#started + 1] = tokens[number]
    started[#started + 1] = partition .. ' 1' .. missed
  end
end
call_many('HSET', KEYS[1], started)
return answers
