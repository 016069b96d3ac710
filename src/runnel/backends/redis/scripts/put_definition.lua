-- Stores a definition under the next version of its name, unless it is stored already. A deleted
-- version counts as not stored.
-- ARGV: name, document, hash
-- Returns the version of the definition.
local definition, versions, versions_of_name, deleted_versions = unpack(KEYS)
local name, document, hash = unpack(ARGV)

local stored = tonumber(redis.call('HGET', definition, 'version') or 0)
if stored > tonumber(redis.call('HGET', deleted_versions, name) or 0) then
  return stored
end
local version = redis.call('HINCRBY', versions, name, 1)
redis.call('HSET', definition, 'name', name, 'version', version, 'document', document)
redis.call('LPUSH', versions_of_name, hash)
return version
