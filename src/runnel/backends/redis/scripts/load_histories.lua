-- Returns the history entries of each aggregate.
-- ARGV: ids of aggregates
local history_prefix = KEYS[1]

local histories = {}
for number, id in ipairs(ARGV) do
  histories[number] = redis.call('LRANGE', history_prefix .. id, 0, -1)
end
return histories
