-- Stores a definition once; its version is the next one of its name. What was deleted is not known.
-- KEYS  1 definition  2 versions  3 versions of the name  4 deleted versions
-- ARGV  1 name  2 document  3 hash
local known = tonumber(redis.call('HGET', KEYS[1], 'version') or 0)
if known > tonumber(redis.call('HGET', KEYS[4], ARGV[1]) or 0) then
  return known
end
local version = redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
redis.call('HSET', KEYS[1], 'name', ARGV[1], 'version', version, 'document', ARGV[2])
redis.call('LPUSH', KEYS[3], ARGV[3])
return version
