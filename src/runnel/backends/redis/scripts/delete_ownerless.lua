-- Deletes those of a page of blobs that belong to no execution and were not touched for long.
-- KEYS  1 keys of blobs  2 headers, and the prefix 3 blob
-- ARGV  1 first key, as ZRANGEBYLEX takes it  2 how many to look at  3 for how many seconds
-- Returns {how many keys the page had, the last one, how many blobs were deleted}.
local names = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local gone = {}
for _, name in ipairs(names) do
  local root = string.match(name, '^[^./]*')
  if redis.call('HEXISTS', KEYS[2], root) == 0 then
    -- A table where the server does not tell: with an eviction by frequency.
    local idle = redis.pcall('OBJECT', 'IDLETIME', KEYS[3] .. name)
    if type(idle) == 'number' and idle >= tonumber(ARGV[3]) then
      redis.call('UNLINK', KEYS[3] .. name)
      gone[#gone + 1] = name
    end
  end
end
call_many('ZREM', KEYS[1], gone)
return {#names, names[#names] or '', #gone}
