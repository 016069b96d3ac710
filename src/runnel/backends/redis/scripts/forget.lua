-- Removes roots that are final and archived, with their children and blobs.
-- KEYS  1 partition  2 headers  3 listed  4 ids  5 final roots  6 final children  7 keys of blobs
--       8 its running executions, and the prefixes 9 history  10 blob
-- ARGV  1 epoch  2 nonce  3 the last commit that is archived  4 how many roots to pass over
--       5 how many to look at  6 how many children one may have here
-- Returns {1, roots looked at, executions removed, roots passed over, roots with more children};
-- or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
local children_max = tonumber(ARGV[6])
local roots = redis.call(
  'ZRANGEBYSCORE', KEYS[5], '-inf', ARGV[3], 'LIMIT', ARGV[4], ARGV[5])

local gone, passed, large = {}, 0, {}
for _, root in ipairs(roots) do
  local below = redis.call(
    'ZRANGEBYLEX', KEYS[4], '[' .. root .. '.', '(' .. root .. '/', 'LIMIT', 0, children_max + 1)
  if #below > children_max then
    large[#large + 1] = root
  else
    local is_over = true
    if #below > 0 then
      for _, score in ipairs(redis.call('ZMSCORE', KEYS[6], unpack(below))) do
        if not score or tonumber(score) > tonumber(ARGV[3]) then
          is_over = false
        end
      end
    end
    if is_over then
      gone[#gone + 1] = root
      for _, id in ipairs(below) do
        gone[#gone + 1] = id
      end
    else
      passed = passed + 1
    end
  end
end

forget_executions(KEYS, gone)
return {1, #roots, #gone, passed, large}
