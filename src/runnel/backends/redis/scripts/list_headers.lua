-- The headers of the newest executions behind a place, whether the execution there still is or not.
-- KEYS  1 listed  2 headers
-- ARGV  1 created_at and  2 id of the place  3 how many at most

-- By bytes, as sorted sets do: Lua's own comparison follows the server's locale.
local function is_below(one, other)
  for at = 1, math.min(#one, #other) do
    local left, right = string.byte(one, at), string.byte(other, at)
    if left ~= right then
      return left < right
    end
  end
  return #one < #other
end

local function rank_behind(score, id)
  local rank = redis.call('ZREVRANK', KEYS[1], id)
  if rank then
    return rank + 1
  end
  local count = redis.call('ZCOUNT', KEYS[1], '(' .. score, '+inf')
  for _, other in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[1], score, score)) do
    if is_below(other, id) then
      break
    end
    count = count + 1
  end
  return count
end

local first = rank_behind(ARGV[1], ARGV[2])
local ids = redis.call('ZREVRANGE', KEYS[1], first, first + tonumber(ARGV[3]) - 1)
local found = {}
for _, header in ipairs(get_many(KEYS[2], ids)) do
  if header then
    found[#found + 1] = header
  end
end
return found
