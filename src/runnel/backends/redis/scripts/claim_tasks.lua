-- Assigns queued tasks to a worker, fairly from all its queues in the given order. Within a queue,
-- the highest priority comes first, workflows take turns, and the tasks of a workflow come in the
-- order of their sort keys. A claim removes the tasks from their lanes, so lanes hold exactly the
-- unclaimed tasks. If there is no task and the worker waits, the next commit with a matching task
-- pushes the task to the worker.
-- ARGV: worker, the maximum number of tasks, '1' for all queues (including those not named here),
-- '1' if the tasks start now or '0' if not, '1' if the worker waits, the run id of the server if a
-- partition is not accepted yet ('' if all are); then the names of queues.
-- Returns {{task...}, {queue served...}, {queue...}, start of the wait}. The third list has the
-- existing queues, and is empty if there was a task. The start of the wait is '0' for a worker that
-- does not wait.
local known_queues, waiting, task_locations, held_tasks, workers, heartbeat_counter, task_prefix,
  partition_prefix, arrival_prefix, turn_prefix, lane_prefix, last_turn = unpack(KEYS)
local worker, limit, takes_all_queues, starts, may_wait, checked_run_id =
  ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5] == '1', ARGV[6]

redis.call('HDEL', waiting, worker)
local names = tail(ARGV, 7)
local named_queues = ''
if not takes_all_queues then
  named_queues = '\n' .. table.concat(names, '\n') .. '\n'
end

-- Returns true if `names` are exactly the existing queues. To compare the number of queues is not
-- enough: a new queue may have replaced a deleted queue.
local function are_all_queues()
  if redis.call('SCARD', known_queues) ~= #names then
    return false
  end
  for first = 1, #names, CHUNK do
    local last = math.min(first + CHUNK - 1, #names)
    for _, exists in ipairs(redis.call('SMISMEMBER', known_queues, unpack(names, first, last))) do
      if exists == 0 then
        return false
      end
    end
  end
  return true
end

if takes_all_queues and not are_all_queues() then
  local is_named = {}
  for _, name in ipairs(names) do
    is_named[name] = true
  end
  -- A queue that the worker does not name was never served by this worker, so that queue comes
  -- first.
  local ordered = {}
  local exists = {}
  for _, name in ipairs(redis.call('SMEMBERS', known_queues)) do
    exists[name] = true
    if not is_named[name] then
      ordered[#ordered + 1] = name
    end
  end
  -- A named queue that no longer exists was empty for a long time and was deleted.
  for _, name in ipairs(names) do
    if exists[name] then
      ordered[#ordered + 1] = name
    end
  end
  names = ordered
end

-- A named queue without recent tasks has no lanes, so it is not read.
local existing = names
if not takes_all_queues and #names > 1 then
  existing = {}
  for number, exists in ipairs(redis.call('SMISMEMBER', known_queues, unpack(names))) do
    if exists == 1 then
      existing[#existing + 1] = names[number]
    end
  end
end

-- Returns true if an owner of the partition has accepted this run of the server.
local acceptance = {}
local function is_accepted(partition)
  if checked_run_id == '' then
    return true
  end
  if acceptance[partition] == nil then
    local run_id = redis.call('HGET', partition_prefix .. partition, 'verified')
    acceptance[partition] = run_id == checked_run_id
  end
  return acceptance[partition]
end

-- Assigns a task to the worker. A task whose partition is not accepted may have run before. It is
-- removed: the next owner of the partition issues the task again if its execution still needs it.
local remaining, bodies, locations, held, removed = tonumber(limit), {}, {}, {}, {}
local function assign(token, partition, body)
  if not is_accepted(partition) then
    removed[#removed + 1] = token
    return
  end
  bodies[#bodies + 1] = body
  locations[#locations + 1] = token
  locations[#locations + 1] = 'w' .. worker
  held[#held + 1] = token
  held[#held + 1] = partition .. ' ' .. starts .. '0'
end

-- Takes tasks that an earlier version queued in a stream. Returns their number.
local function take_from_stream(key, count)
  local ids = {}
  for number, entry in ipairs(redis.call('XRANGE', key, '-', '+', 'COUNT', count)) do
    local fields = entry[2]
    local token, partition, body = fields[2], fields[4], fields[6]
    ids[number] = entry[1]
    assign(token, partition, body)
  end
  call_many('XDEL', key, ids)
  return #ids
end

-- Takes up to `count` tasks of a lane and adds their tokens to `tokens`. Returns true if the lane
-- is empty now.
local function take_from_lane(name, lane, count, tokens)
  local members = redis.call('ZPOPMIN', lane_key(lane_prefix, name, lane), count)
  for number = 1, #members, 2 do
    local token, partition, body = string.match(members[number], '\n([^\n]*)\n(%d+) (.*)$')
    tokens[#tokens + 1] = token
    assign(token, partition, body)
  end
  return #members < 2 * count
end

-- Takes tasks of the lanes whose turn it is: equally many of each lane of the highest priority, in
-- the order of turns. Each of these lanes then goes to the end of the turns.
local function take_from_lanes(name, count)
  local turns, tokens = turn_prefix .. name, {}
  while #tokens < count do
    local wanted = count - #tokens
    -- One lane more than wanted shows whether a lane has to give way to another lane.
    local lanes, same = redis.call('ZRANGE', turns, 0, wanted), 0
    while same < #lanes and lane_priority(lanes[same + 1]) == lane_priority(lanes[1]) do
      same = same + 1
    end
    if same == 0 then
      break
    end
    local serving = math.min(same, wanted)
    local share, moved = math.floor(wanted / serving), {}
    for number = 1, serving do
      if take_from_lane(name, lanes[number], share, tokens) then
        redis.call('ZREM', turns, lanes[number])
      elseif same > 1 then
        moved[#moved + 1] = lanes[number]
      end
    end
    if #moved > 0 then
      local last = redis.call('INCRBY', last_turn, #moved)
      for number, lane in ipairs(moved) do
        add_turn(turns, lane, last - #moved + number)
      end
    end
  end
  call_many('ZREM', arrival_prefix .. name, tokens)
  return #tokens
end

local function take(name, count)
  local taken = 0
  if redis.call('XLEN', task_prefix .. name) > 0 then
    taken = take_from_stream(task_prefix .. name, count)
  end
  if taken < count then
    taken = taken + take_from_lanes(name, count - taken)
  end
  remaining = remaining - taken
  return taken
end

local served, not_exhausted = {}, {}
for number, name in ipairs(existing) do
  if remaining <= 0 then
    break
  end
  local share = math.max(1, math.floor(remaining / (#existing - number + 1)))
  local taken = take(name, share)
  if taken > 0 then
    served[#served + 1] = name
  end
  if taken == share then
    not_exhausted[#not_exhausted + 1] = name
  end
end
for _, name in ipairs(not_exhausted) do
  if remaining > 0 then
    take(name, remaining)
  end
end

call_many('HDEL', task_locations, removed)
local waits, since = #bodies == 0 and #removed == 0 and may_wait, '0'
if waits then
  since = server_time()
  redis.call('HSET', waiting, worker, limit .. ' ' .. starts .. named_queues)
end
if (waits or #bodies > 0) and redis.call('HEXISTS', workers, worker) == 0 then
  redis.call('HSET', workers, worker, redis.call('INCR', heartbeat_counter))
end
if #bodies > 0 then
  call_many('HSET', task_locations, locations)
  call_many('HSET', held_tasks, held)
  return {bodies, served, {}, since}
end
return {{}, {}, names, since}
