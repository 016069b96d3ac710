-- Deletes a page of the blobs whose key begins so.
-- KEYS  1 keys of blobs, and the prefix 2 blob
-- ARGV  1 first key  2 last key, both as ZRANGEBYLEX takes them  3 how many at most
-- Returns {how many keys the page had, how many blobs were there}.
local names = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3])
local deleted = 0
for _, name in ipairs(names) do
  deleted = deleted + redis.call('UNLINK', KEYS[2] .. name)
end
call_many('ZREM', KEYS[1], names)
return {#names, deleted}
