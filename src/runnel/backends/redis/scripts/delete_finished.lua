-- Removes executions whose headers have not changed since they were read; a final one never
-- changes.
-- KEYS: as forget_executions takes them; the second is the headers.
-- ARGV: ids, then their headers Returns 1, or 0 if one of them has changed.
local headers = KEYS[2]

local ids, count = {}, #ARGV / 2
for number = 1, count do
  ids[number] = ARGV[number]
end
for number, header in ipairs(get_many(headers, ids)) do
  if header ~= ARGV[count + number] then
    return 0
  end
end
forget_executions(KEYS, ids)
return 1
