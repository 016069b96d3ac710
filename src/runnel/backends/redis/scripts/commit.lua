-- Writes all of one commit, or nothing: Lua has no rollback, so everything is checked first.
-- KEYS  1 partition  2 its inbox  3 its timers  4 their attempts  5 its running executions  6 out
--       7 queues  8 waiting workers  9 headers  10 listed  11 ids  12 queues with dead letters
--       and the prefixes 13 history  14 tasks  15 inbox  16 held  17 dropped  18 letters
--       and 19 the partition's concurrency keys that have a history, 20 its journal, 21 its final
--       roots, 22 its final children, 23 the feed, and the prefix 24 hand
-- ARGV  1 epoch  2 nonce  3 sequence  4 partition number  5 position consumed ('' for none)
--       6 the position behind it  7 how the id of a concurrency key begins  8 how many entries the
--       journal may have (0: there is none); then ten lists, each its length in items and the items:
--       histories (aggregate, entry), headers (id, header, created_at, kind), closed (id),
--       tasks (queue, token, task), dropped (token), timers cleared (key), timers set (key, due,
--       attempt), messages (partition, message, then of an execution that it makes: id, header,
--       created_at), letters (queue, how many it keeps, letter, and ten fields of it), changes as the
--       feed has them (entry)
--       A header's kind: r running, p pending, f final, c final child.
-- Returns {1}, or {0, the current epoch, whether the nonce is the current one, the last sequence}, or
-- {2, its length} when the journal is full.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce', 'sequence')
local last = tonumber(now[3] or '0')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] or last + 1 ~= tonumber(ARGV[3]) then
  return {0, now[1] or '0', now[2] == ARGV[2] and 1 or 0, last}
end

local journal_max = tonumber(ARGV[8])
if journal_max > 0 then
  local length = redis.call('XLEN', KEYS[20])
  if length >= journal_max then
    return {2, length}
  end
end

-- The first and the last argument of each list.
local lists, place = {}, 9
for number, width in ipairs({2, 4, 1, 3, 1, 1, 3, 5, 13, 1}) do
  local first = place + 1
  place = first + tonumber(ARGV[place]) * width
  lists[number] = {first, place - 1}
end
local next_list = 0
local function items()
  next_list = next_list + 1
  return lists[next_list][1], lists[next_list][2]
end

-- The first write: a server that refuses it has written nothing of the commit.
if journal_max > 0 then
  local fields = {}
  for at = lists[1][1], lists[1][2], 2 do
    fields[#fields + 1] = 'h' .. ARGV[at]
    fields[#fields + 1] = ARGV[at + 1]
  end
  for at = lists[2][1], lists[2][2], 4 do
    fields[#fields + 1] = 'x'
    fields[#fields + 1] = ARGV[at + 1]
  end
  for at = lists[3][1], lists[3][2] do
    fields[#fields + 1] = 'c'
    fields[#fields + 1] = ARGV[at]
  end
  for at = lists[9][1], lists[9][2], 13 do
    fields[#fields + 1] = 'd'
    fields[#fields + 1] = ARGV[at + 2]
  end
  if #fields == 0 then
    fields = {'-', ''}
  end
  redis.call('XADD', KEYS[20], ARGV[3] .. '-0', unpack(fields))
end

local function index_execution(id, created_at)
  redis.call('ZADD', KEYS[10], created_at, id)
  redis.call('ZADD', KEYS[11], 0, id)
end

local first, last_item = items()
for at = first, last_item, 2 do
  local id = ARGV[at]
  redis.call('RPUSH', KEYS[13] .. id, ARGV[at + 1])
  if string.sub(id, 1, #ARGV[7]) == ARGV[7] then
    redis.call('SADD', KEYS[19], string.sub(id, #ARGV[7] + 1))
  end
end

-- Together: a call for each of them, and a line of each in the append-only file, costs more.
local headers, running, others, ended = {}, {}, {}, {f = {}, c = {}}
first, last_item = items()
for at = first, last_item, 4 do
  local id, kind = ARGV[at], ARGV[at + 3]
  headers[#headers + 1] = id
  headers[#headers + 1] = ARGV[at + 1]
  if kind == 'r' then
    running[#running + 1] = ARGV[at + 2]
    running[#running + 1] = id
  else
    others[#others + 1] = id
  end
  if journal_max > 0 and ended[kind] then
    table.insert(ended[kind], ARGV[3])
    table.insert(ended[kind], id)
  end
end
if call_many('HSET', KEYS[9], headers) > 0 then
  for at = first, last_item, 4 do
    index_execution(ARGV[at], ARGV[at + 2])
  end
end
call_many('ZADD', KEYS[5], running)
call_many('ZREM', KEYS[5], others)
call_many('ZADD', KEYS[21], ended.f)
call_many('ZADD', KEYS[22], ended.c)

first, last_item = items()
for at = first, last_item do
  redis.call('DEL', KEYS[13] .. ARGV[at])
  redis.call('SREM', KEYS[19], string.sub(ARGV[at], #ARGV[7] + 1))
end

local is_dropped = {}
for at = lists[5][1], lists[5][2] do
  is_dropped[ARGV[at]] = true
end

-- What a worker waits for is handed to it, the rest is queued. Issued before dropped: a task that is
-- issued and dropped by one commit ends dropped, so nobody gets it.
local issued, queues, pools, count = {}, {}, {}, 0
local function queue_task(at)
  local entry = redis.call(
    'XADD', KEYS[14] .. ARGV[at], '*', 't', ARGV[at + 1], 'p', ARGV[4], 'b', ARGV[at + 2])
  issued[#issued + 1] = ARGV[at + 1]
  issued[#issued + 1] = 'q' .. entry .. ' ' .. ARGV[at]
end

first, last_item = items()
for at = first, last_item, 3 do
  local pool = pools[ARGV[at]]
  if not pool then
    pool = {}
    pools[ARGV[at]] = pool
    queues[#queues + 1] = ARGV[at]
  end
  if is_dropped[ARGV[at + 1]] then
    queue_task(at)
  else
    pool[#pool + 1] = at
    count = count + 1
  end
end
call_many('SADD', KEYS[7], queues)

-- A worker that waits found its queues empty, and gets the first task for it that comes after that.
-- It is handed tasks once, and then asks for more itself. One that nobody hears any more is dead.
local function hand_out(worker, wants, share, time)
  local most, starts, names = string.match(wants, '^(%d+) (%d)(.*)$')
  local left, bodies, taken, held = math.min(tonumber(most), share), {}, {}, {}
  for _, queue in ipairs(queues) do
    local pool = pools[queue]
    if names == '' or string.find(names, '\n' .. queue .. '\n', 1, true) then
      taken[queue] = math.min(left, #pool)
      left = left - taken[queue]
      for number = 1, taken[queue] do
        local at = pool[number]
        bodies[#bodies + 1] = ARGV[at + 2]
        held[#held + 1] = ARGV[at + 1]
        held[#held + 1] = ARGV[4] .. ' ' .. starts .. '0'
      end
    end
  end
  if #bodies == 0 then
    return
  end
  redis.call('HDEL', KEYS[8], worker)
  -- A refusal (the user may have no right to the channel) must not end a commit in its middle.
  local words = time .. ' [' .. table.concat(bodies, ',') .. ']'
  local heard = redis.pcall('PUBLISH', KEYS[24] .. worker, words)
  if type(heard) == 'table' or heard == 0 then
    return
  end
  for queue, number in pairs(taken) do
    pools[queue] = tail(pools[queue], number + 1)
    count = count - number
  end
  call_many('HSET', KEYS[16] .. worker, held)
  for number = 1, #held, 2 do
    issued[#issued + 1] = held[number]
    issued[#issued + 1] = 'w' .. worker
  end
end

-- Of many that wait, some at random are enough most of the time: all of 1,000 took 1.6 ms.
local SOME = 32
local waiting = count > 0 and redis.call('HRANDFIELD', KEYS[8], SOME, 'WITHVALUES') or {}
if #waiting > 0 then
  local many = #waiting / 2
  local are_some = many == SOME
  if are_some then
    many = redis.call('HLEN', KEYS[8])
  end
  local share, time = math.ceil(count / many), server_time()
  while count > 0 and #waiting > 0 do
    for number = 1, #waiting, 2 do
      if count > 0 then
        hand_out(waiting[number], waiting[number + 1], share, time)
      end
    end
    waiting = are_some and count > 0 and redis.call('HGETALL', KEYS[8]) or {}
    are_some = false
  end
end
for _, queue in ipairs(queues) do
  for _, at in ipairs(pools[queue]) do
    queue_task(at)
  end
end
call_many('HSET', KEYS[6], issued)

local dropped = {}
first, last_item = items()
for at = first, last_item do
  dropped[#dropped + 1] = ARGV[at]
end
drop_tasks(KEYS[6], KEYS[14], KEYS[16], KEYS[17], dropped)

-- Cleared before set: a timer that one commit clears and sets ends set.
local cleared = {}
first, last_item = items()
for at = first, last_item do
  cleared[#cleared + 1] = ARGV[at]
end
call_many('ZREM', KEYS[3], cleared)
call_many('HDEL', KEYS[4], cleared)

local due, attempts = {}, {}
first, last_item = items()
for at = first, last_item, 3 do
  due[#due + 1] = ARGV[at + 1]
  due[#due + 1] = ARGV[at]
  attempts[#attempts + 1] = ARGV[at]
  attempts[#attempts + 1] = ARGV[at + 2]
end
call_many('ZADD', KEYS[3], due)
call_many('HSET', KEYS[4], attempts)

local made = {}
first, last_item = items()
for at = first, last_item, 5 do
  redis.call('XADD', KEYS[15] .. ARGV[at], '*', 'm', ARGV[at + 1])
  local id = ARGV[at + 2]
  if id ~= '' and redis.call('HSETNX', KEYS[9], id, ARGV[at + 3]) == 1 then
    index_execution(id, ARGV[at + 4])
    made[#made + 1] = id
  end
end

first, last_item = items()
for at = first, last_item, 13 do
  local queue = ARGV[at]
  redis.call('SADD', KEYS[12], queue)
  redis.call(
    'XADD', KEYS[18] .. queue, 'MAXLEN', '~', ARGV[at + 1], '*', 'execution_id', ARGV[at + 3],
    'node_id', ARGV[at + 4], 'item', ARGV[at + 5], 'attempt', ARGV[at + 6], 'handler', ARGV[at + 7],
    'config', ARGV[at + 8], 'reason', ARGV[at + 9], 'original_message_id', ARGV[at + 10],
    'error', ARGV[at + 11], 'rejected_at', ARGV[at + 12], 'letter', ARGV[at + 2])
end

first, last_item = items()
for at = first, last_item do
  tell_feed(KEYS[23], ARGV[at])
end
tell_pending(KEYS[23], made)

redis.call('HSET', KEYS[1], 'sequence', ARGV[3])
if ARGV[5] ~= '' then
  redis.call('HSET', KEYS[1], 'cursor', ARGV[5])
  redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[6])
end
return {1}
