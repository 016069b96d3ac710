-- Removes executions if none of their headers has changed since the caller read them. The header of
-- a final execution never changes.
-- KEYS: the keys of forget_executions; the second key has the headers.
-- ARGV: ids, then their headers
-- Returns 1, or 0 if a header has changed; then nothing is removed.
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
