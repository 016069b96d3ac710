-- Deletes a record if it has the expected revision.
-- ARGV: key, expected revision ('' for any)
-- Returns {1 if the record was deleted, the revision of the record before (0 if it did not exist)}.
local records, record_names = unpack(KEYS)
local key, expected = unpack(ARGV)

local current = read_revision(records, key)
if current == 0 or (expected ~= '' and current ~= tonumber(expected)) then
  return {0, current}
end
redis.call('HDEL', records, key)
redis.call('ZREM', record_names, key)
return {1, current}
