-- The histories of several aggregates.
-- KEYS  the prefix 1 history
-- ARGV  ids
-- Returns the entries of each.
local found = {}
for number, id in ipairs(ARGV) do
  found[number] = redis.call('LRANGE', KEYS[1] .. id, 0, -1)
end
return found
