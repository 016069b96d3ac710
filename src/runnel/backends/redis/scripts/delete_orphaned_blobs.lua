-- Deletes those blobs of one page that have no execution and were not used for a minimum time.
-- ARGV: first key (in the syntax of ZRANGEBYLEX), the size of the page, the minimum idle time in
-- seconds
-- Returns {the number of keys in the page, the last key, the number of deleted blobs}.
local blob_keys, headers, blob_prefix = unpack(KEYS)
local first, limit, idle_s_min = ARGV[1], ARGV[2], tonumber(ARGV[3])

local names = redis.call('ZRANGEBYLEX', blob_keys, first, '+', 'LIMIT', 0, limit)
local deleted = {}
for _, name in ipairs(names) do
  local root = string.match(name, '^[^./]*')
  if redis.call('HEXISTS', headers, root) == 0 then
    -- The reply is an error (a table) if the server evicts by frequency, because it then has no
    -- idle times.
    local idle_s = redis.pcall('OBJECT', 'IDLETIME', blob_prefix .. name)
    if type(idle_s) == 'number' and idle_s >= idle_s_min then
      redis.call('UNLINK', blob_prefix .. name)
      deleted[#deleted + 1] = name
    end
  end
end
call_many('ZREM', blob_keys, deleted)
return {#names, names[#names] or '', #deleted}
