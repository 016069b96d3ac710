-- Removes executions that are as they were found: what is final does not change any more.
-- KEYS  1 partition  2 headers  3 listed  4 ids  5 final roots  6 final children  7 keys of blobs
--       8 its running executions, and the prefixes 9 history  10 blob
-- ARGV  ids, then their headers
-- Returns 1, or 0 when one of them has changed.
local ids, count = {}, #ARGV / 2
for number = 1, count do
  ids[number] = ARGV[number]
end
for number, header in ipairs(get_many(KEYS[2], ids)) do
  if header ~= ARGV[count + number] then
    return 0
  end
end
forget_executions(KEYS, ids)
return 1
