-- Removes final, archived root executions with their descendants and blobs.
-- KEYS: the keys of forget_executions; the first key is the partition.
-- ARGV: epoch, nonce, the last archived commit, the number of roots to skip, the number of roots to
-- examine, the maximum number of descendants of a root that this script removes.
-- Returns {1, roots examined, executions removed, roots skipped because a descendant is not final,
-- roots with more than the maximum number of descendants}, or {0, the current epoch} if the lease
-- is lost.
local partition, ids, ended_roots, ended_children = KEYS[1], KEYS[4], KEYS[5], KEYS[6]
local epoch, nonce, archived_upto, skip, limit = unpack(ARGV)
local descendants_max = tonumber(ARGV[6])

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] ~= epoch or current[2] ~= nonce then
  return {0, current[1] or '0'}
end
local roots = redis.call('ZRANGEBYSCORE', ended_roots, '-inf', archived_upto, 'LIMIT', skip, limit)

local removed, skipped, large = {}, 0, {}
for _, root in ipairs(roots) do
  local descendants = redis.call(
    'ZRANGEBYLEX', ids, '[' .. root .. '.', '(' .. root .. '/', 'LIMIT', 0, descendants_max + 1)
  if #descendants > descendants_max then
    large[#large + 1] = root
  else
    local is_archived = true
    if #descendants > 0 then
      for _, ended_by in ipairs(redis.call('ZMSCORE', ended_children, unpack(descendants))) do
        if not ended_by or tonumber(ended_by) > tonumber(archived_upto) then
          is_archived = false
        end
      end
    end
    if is_archived then
      removed[#removed + 1] = root
      for _, id in ipairs(descendants) do
        removed[#removed + 1] = id
      end
    else
      skipped = skipped + 1
    end
  end
end

forget_executions(KEYS, removed)
return {1, #roots, #removed, skipped, large}
