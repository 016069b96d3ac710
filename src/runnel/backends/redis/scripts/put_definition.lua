-- Stores a definition once; its version is the next one of its name.
-- KEYS  1 definition  2 versions
-- ARGV  1 name  2 document
local known = redis.call('HGET', KEYS[1], 'version')
if known then
  return tonumber(known)
end
local version = redis.call('HINCRBY', KEYS[2], ARGV[1], 1)
redis.call('HSET', KEYS[1], 'name', ARGV[1], 'version', version, 'document', ARGV[2])
return version
