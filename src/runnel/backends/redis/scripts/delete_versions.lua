-- All versions of a name up to its last are deleted; definitions stay, for executions of them.
-- KEYS  1 versions  2 deleted versions
-- ARGV  1 name
-- Returns how many there were.
local last = tonumber(redis.call('HGET', KEYS[1], ARGV[1]) or 0)
local before = tonumber(redis.call('HGET', KEYS[2], ARGV[1]) or 0)
if last > before then
  redis.call('HSET', KEYS[2], ARGV[1], last)
end
return last - before
