-- Deletes one page of the blobs whose keys are in a range.
-- ARGV: first key and last key (both in the syntax of ZRANGEBYLEX), the maximum number of blobs
-- Returns {the number of keys in the page, the number of blobs that existed}.
local blob_keys, blob_prefix = unpack(KEYS)
local first, last, limit = unpack(ARGV)

local names = redis.call('ZRANGEBYLEX', blob_keys, first, last, 'LIMIT', 0, limit)
local deleted = 0
for _, name in ipairs(names) do
  deleted = deleted + redis.call('UNLINK', blob_prefix .. name)
end
call_many('ZREM', blob_keys, names)
return {#names, deleted}
