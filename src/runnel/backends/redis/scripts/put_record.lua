-- Replaces a record that has the expected revision; 0 is for one that is not there.
-- KEYS  1 records of the kind  2 their names  3 the revision that was given last
-- ARGV  1 key  2 expected revision  3 data
-- Returns the new revision, or 0 and the one that was found.
local found = revision_of(KEYS[1], ARGV[1])
if found ~= tonumber(ARGV[2]) then
  return {0, found}
end
local revision = redis.call('INCR', KEYS[3])
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f ', revision) .. ARGV[3])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return {revision, found}
