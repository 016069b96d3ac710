-- Marks all versions of a workflow as deleted. The definitions stay, because executions need them.
-- Returns the number of versions that were deleted.
local versions, deleted_versions = unpack(KEYS)
local name = ARGV[1]

local last = tonumber(redis.call('HGET', versions, name) or 0)
local last_deleted = tonumber(redis.call('HGET', deleted_versions, name) or 0)
if last > last_deleted then
  redis.call('HSET', deleted_versions, name, last)
end
return last - last_deleted
