-- Removes a record, if it has the expected revision.
-- KEYS  1 records of the kind  2 their names
-- ARGV  1 key  2 expected revision, or nothing for any
-- Returns 1 if it is gone now and was not before, and the revision that was found.
local found = revision_of(KEYS[1], ARGV[1])
if found == 0 or (ARGV[2] ~= '' and found ~= tonumber(ARGV[2])) then
  return {0, found}
end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
return {1, found}
