-- Stores a record if its current revision is the expected one. A record that does not exist has
-- revision 0.
-- ARGV: key, expected revision, data
-- Returns {the new revision, or 0 if the record had another revision; the revision before}.
local records, record_names, last_revision = unpack(KEYS)
local key, expected, data = unpack(ARGV)

local current = read_revision(records, key)
if current ~= tonumber(expected) then
  return {0, current}
end
local revision = redis.call('INCR', last_revision)
redis.call('HSET', records, key, string.format('%.0f ', revision) .. data)
redis.call('ZADD', record_names, 0, key)
return {revision, current}
