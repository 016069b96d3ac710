-- Hands queued tasks to a worker, fair over the queues in the order in which they are named.
-- A claim takes the entry out of its stream: what is in a stream is what nobody has.
-- A worker that waits, and finds nothing, is handed tasks by the commit that issues them.
-- KEYS  1 queues  2 waiting workers  3 out  4 held by this worker  5 workers  6 signs
--       and the prefix 7 tasks
-- ARGV  1 worker  2 how many at most  3 '1' for all queues, those that are not named too
--       4 '1' if they start, else '0'  5 '1' if it waits; then the names of queues
-- Returns {{task...}, {queue served...}, {queue...}, since when it waits}: the queues are those that
-- there are, and empty when there was a task; '0' for one that does not wait.
redis.call('HDEL', KEYS[2], ARGV[1])
local names = tail(ARGV, 6)
local wanted = ''
if ARGV[3] == '0' then
  wanted = '\n' .. table.concat(names, '\n') .. '\n'
end

-- As many as there are, and each of them: one may have come in the place of one that was forgotten.
local function are_all()
  if redis.call('SCARD', KEYS[1]) ~= #names then
    return false
  end
  for first = 1, #names, CHUNK do
    local last = math.min(first + CHUNK - 1, #names)
    for _, is_there in ipairs(redis.call('SMISMEMBER', KEYS[1], unpack(names, first, last))) do
      if is_there == 0 then
        return false
      end
    end
  end
  return true
end

if ARGV[3] == '1' and not are_all() then
  local known = {}
  for _, name in ipairs(names) do
    known[name] = true
  end
  -- Those that are not named were never served: they come first.
  local new = {}
  local is_there = {}
  for _, name in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    is_there[name] = true
    if not known[name] then
      new[#new + 1] = name
    end
  end
  -- One that is not there any more has been forgotten, because it was empty for long.
  for _, name in ipairs(names) do
    if is_there[name] then
      new[#new + 1] = name
    end
  end
  names = new
end

-- A named queue that never had a task, or none for long, has no stream: nothing is looked up there.
local there = names
if ARGV[3] == '0' and #names > 1 then
  there = {}
  for number, is_there in ipairs(redis.call('SMISMEMBER', KEYS[1], unpack(names))) do
    if is_there == 1 then
      there[#there + 1] = names[number]
    end
  end
end

local left, bodies, out, held = tonumber(ARGV[2]), {}, {}, {}
local function take(name, most)
  local key = KEYS[7] .. name
  local entries, ids = redis.call('XRANGE', key, '-', '+', 'COUNT', most), {}
  for number, entry in ipairs(entries) do
    local fields = entry[2]
    ids[number] = entry[1]
    bodies[#bodies + 1] = fields[6]
    out[#out + 1] = fields[2]
    out[#out + 1] = 'w' .. ARGV[1]
    held[#held + 1] = fields[2]
    held[#held + 1] = fields[4] .. ' ' .. ARGV[4] .. '0'
  end
  call_many('XDEL', key, ids)
  left = left - #ids
  return #ids
end

local served, more = {}, {}
for number, name in ipairs(there) do
  if left <= 0 then
    break
  end
  local share = math.max(1, math.floor(left / (#there - number + 1)))
  local taken = take(name, share)
  if taken > 0 then
    served[#served + 1] = name
  end
  if taken == share then
    more[#more + 1] = name
  end
end
for _, name in ipairs(more) do
  if left > 0 then
    take(name, left)
  end
end

local waits, since = #bodies == 0 and ARGV[5] == '1', '0'
if waits then
  since = server_time()
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. ARGV[4] .. wanted)
end
if (waits or #bodies > 0) and redis.call('HEXISTS', KEYS[5], ARGV[1]) == 0 then
  redis.call('HSET', KEYS[5], ARGV[1], redis.call('INCR', KEYS[6]))
end
if #bodies > 0 then
  call_many('HSET', KEYS[3], out)
  call_many('HSET', KEYS[4], held)
  return {bodies, served, {}, since}
end
return {{}, {}, names, since}
