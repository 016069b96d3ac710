-- Lists the headers of the newest executions after a position. The execution at the position may
-- have been deleted.
-- ARGV: created_at and id of the position, the maximum number of headers
local ids_by_created_at, headers = unpack(KEYS)
local created_at, position_id, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- Compares two strings by bytes, as sorted sets do. The string comparison of Lua depends on the
-- locale of the server.
local function is_less(left, right)
  for at = 1, math.min(#left, #right) do
    local left_byte, right_byte = string.byte(left, at), string.byte(right, at)
    if left_byte ~= right_byte then
      return left_byte < right_byte
    end
  end
  return #left < #right
end

local function find_rank_after(score, id)
  local rank = redis.call('ZREVRANK', ids_by_created_at, id)
  if rank then
    return rank + 1
  end
  local count = redis.call('ZCOUNT', ids_by_created_at, '(' .. score, '+inf')
  for _, other in ipairs(redis.call('ZREVRANGEBYSCORE', ids_by_created_at, score, score)) do
    if is_less(other, id) then
      break
    end
    count = count + 1
  end
  return count
end

local first = find_rank_after(created_at, position_id)
local ids = redis.call('ZREVRANGE', ids_by_created_at, first, first + limit - 1)
local existing = {}
for _, header in ipairs(get_many(headers, ids)) do
  if header then
    existing[#existing + 1] = header
  end
end
return existing
