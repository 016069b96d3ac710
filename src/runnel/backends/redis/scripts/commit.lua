-- Writes one commit completely or not at all. Lua has no rollback, so all checks come first.
-- ARGV: epoch, nonce, sequence, partition number, consumed position ('' for none), the position
-- after it, the prefix of the aggregate id of a concurrency key, the maximum length of the journal
-- (0 if there is none), the text of the message TaskStopped before its token and after it; then
-- eleven lists, each as its number of items and the items:
--   1 histories (aggregate, entry)
--   2 headers (id, header, created_at, kind: r running, p pending, f final root, c final child)
--   3 closed aggregates (id)
--   4 tasks (queue, token, task, lane, sort key)
--   5 dropped tasks (token)
--   6 cleared timers (key)
--   7 set timers (key, due, attempt)
--   8 messages (partition, message, and id, header and created_at of the execution that the message
--     creates, or '' three times)
--   9 dead letters (queue, the maximum number of letters of the queue, letter, ten fields of the
--     letter)
--   10 changes (entry of the feed)
--   11 stopped tasks (token)
-- Returns {1}; {0, current epoch, 1 if the nonce is current, last sequence} if the commit is
-- refused; {2, length} if the journal is full.
local partition, inbox, timers, timer_attempts, running, task_locations, known_queues,
  waiting_workers, all_headers, ids_by_created_at, all_ids, letter_queues, history_prefix,
  task_prefix, inbox_prefix, held_prefix, dropped_prefix, letter_prefix, concurrency_keys, journal,
  ended_roots, ended_children, feed, push_prefix, arrival_prefix, turn_prefix,
  lane_prefix, last_turn = unpack(KEYS)
local epoch, nonce, sequence, partition_number, consumed, next_position, limit_prefix, journal_max =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
local stopped_before, stopped_after = ARGV[9], ARGV[10]

local current = redis.call('HMGET', partition, 'epoch', 'nonce', 'sequence')
local last = tonumber(current[3] or '0')
if current[1] ~= epoch or current[2] ~= nonce or last + 1 ~= tonumber(sequence) then
  return {0, current[1] or '0', current[2] == nonce and 1 or 0, last}
end

if journal_max > 0 then
  local length = redis.call('XLEN', journal)
  if length >= journal_max then
    return {2, length}
  end
end

-- The index of the first and of the last argument of each list.
local lists, list_at = {}, 11
for number, width in ipairs({2, 4, 1, 5, 1, 1, 3, 5, 13, 1, 1}) do
  local first = list_at + 1
  list_at = first + tonumber(ARGV[list_at]) * width
  lists[number] = {first, list_at - 1}
end
local HISTORIES, HEADERS, CLOSED, TASKS, DROPPED, CLEARED, SET, MESSAGES, LETTERS, CHANGES,
  STOPPED = unpack(lists)

-- The journal is written first: if the server refuses this write, it has written nothing of the
-- commit.
if journal_max > 0 then
  local fields = {}
  for at = HISTORIES[1], HISTORIES[2], 2 do
    fields[#fields + 1] = 'h' .. ARGV[at]
    fields[#fields + 1] = ARGV[at + 1]
  end
  for at = HEADERS[1], HEADERS[2], 4 do
    fields[#fields + 1] = 'x'
    fields[#fields + 1] = ARGV[at + 1]
  end
  for at = CLOSED[1], CLOSED[2] do
    fields[#fields + 1] = 'c'
    fields[#fields + 1] = ARGV[at]
  end
  for at = LETTERS[1], LETTERS[2], 13 do
    fields[#fields + 1] = 'd'
    fields[#fields + 1] = ARGV[at + 2]
  end
  if #fields == 0 then
    fields = {'-', ''}
  end
  redis.call('XADD', journal, sequence .. '-0', unpack(fields))
end

local function index_execution(id, created_at)
  redis.call('ZADD', ids_by_created_at, created_at, id)
  redis.call('ZADD', all_ids, 0, id)
end

for at = HISTORIES[1], HISTORIES[2], 2 do
  local id, entry = ARGV[at], ARGV[at + 1]
  redis.call('RPUSH', history_prefix .. id, entry)
  if string.sub(id, 1, #limit_prefix) == limit_prefix then
    redis.call('SADD', concurrency_keys, string.sub(id, #limit_prefix + 1))
  end
end

-- All headers are written with one call, because each call adds a command to the append-only file.
local headers, running_ids, other_ids, ended = {}, {}, {}, {f = {}, c = {}}
for at = HEADERS[1], HEADERS[2], 4 do
  local id, header, created_at, kind = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  headers[#headers + 1] = id
  headers[#headers + 1] = header
  if kind == 'r' then
    running_ids[#running_ids + 1] = created_at
    running_ids[#running_ids + 1] = id
  else
    other_ids[#other_ids + 1] = id
  end
  if journal_max > 0 and ended[kind] then
    table.insert(ended[kind], sequence)
    table.insert(ended[kind], id)
  end
end
if call_many('HSET', all_headers, headers) > 0 then
  for at = HEADERS[1], HEADERS[2], 4 do
    index_execution(ARGV[at], ARGV[at + 2])
  end
end
call_many('ZADD', running, running_ids)
call_many('ZREM', running, other_ids)
call_many('ZADD', ended_roots, ended.f)
call_many('ZADD', ended_children, ended.c)

for at = CLOSED[1], CLOSED[2] do
  local id = ARGV[at]
  redis.call('DEL', history_prefix .. id)
  redis.call('SREM', concurrency_keys, string.sub(id, #limit_prefix + 1))
end

local is_dropped = {}
for at = DROPPED[1], DROPPED[2] do
  is_dropped[ARGV[at]] = true
end

-- Tasks are pushed to waiting workers, and the remaining tasks are queued. Tasks are issued before
-- tasks are dropped: a task that the same commit issues and drops must end dropped, so no worker
-- gets it. `unassigned` maps each queue to the argument indexes of its tasks that were not pushed.
local locations, queues, unassigned, unassigned_count = {}, {}, {}, 0
local arrival = TASKS[1] <= TASKS[2] and string.format('%.0f', server_time_ms()) or ''
-- The new members of each lane, by queue and lane; and the same lanes in order.
local members_by_lane, queued_lanes = {}, {}
local function queue_task(at)
  local queue, token, task, lane = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  -- Tasks with equal keys come in the order of arrival: by time, and within a commit by index.
  local sort_key = ARGV[at + 4] .. ' ' .. arrival .. string.format(' %06d', at)
  local lanes = members_by_lane[queue] or {}
  local queued = lanes[lane]
  if not queued then
    queued = {queue = queue, lane = lane, members = {}, arrivals = {}}
    queued.location =
      'l' .. partition_number .. ' ' .. #queue .. ' ' .. #lane .. ' ' .. queue .. lane
    members_by_lane[queue], lanes[lane] = lanes, queued
    queued_lanes[#queued_lanes + 1] = queued
  end
  local members, arrivals = queued.members, queued.arrivals
  members[#members + 1] = 0
  members[#members + 1] = member_start(sort_key, token) .. partition_number .. ' ' .. task
  arrivals[#arrivals + 1] = arrival
  arrivals[#arrivals + 1] = token
  locations[#locations + 1] = token
  locations[#locations + 1] = queued.location .. sort_key
end

for at = TASKS[1], TASKS[2], 5 do
  local queue, token = ARGV[at], ARGV[at + 1]
  local indexes = unassigned[queue]
  if not indexes then
    indexes = {}
    unassigned[queue] = indexes
    queues[#queues + 1] = queue
  end
  if is_dropped[token] then
    queue_task(at)
  else
    indexes[#indexes + 1] = at
    unassigned_count = unassigned_count + 1
  end
end
call_many('SADD', known_queues, queues)

-- Pushes tasks to a waiting worker, whose queues were empty at its last claim. The worker gets one
-- push and claims further tasks itself. A worker without a subscriber to its channel is dead.
local function push_tasks(worker, request, share, time)
  local limit, starts, named_queues = string.match(request, '^(%d+) (%d)(.*)$')
  local remaining, bodies, taken, held = math.min(tonumber(limit), share), {}, {}, {}
  for _, queue in ipairs(queues) do
    local indexes = unassigned[queue]
    if named_queues == '' or string.find(named_queues, '\n' .. queue .. '\n', 1, true) then
      taken[queue] = math.min(remaining, #indexes)
      remaining = remaining - taken[queue]
      for number = 1, taken[queue] do
        local at = indexes[number]
        bodies[#bodies + 1] = ARGV[at + 2]
        held[#held + 1] = ARGV[at + 1]
        held[#held + 1] = partition_number .. ' ' .. starts .. '0'
      end
    end
  end
  if #bodies == 0 then
    return
  end
  redis.call('HDEL', waiting_workers, worker)
  -- pcall is used because an error must not end a commit half-way. For example, the Redis user may
  -- lack the right to the channel.
  local payload = time .. ' [' .. table.concat(bodies, ',') .. ']'
  local receivers = redis.pcall('PUBLISH', push_prefix .. worker, payload)
  if type(receivers) == 'table' or receivers == 0 then
    return
  end
  for queue, number in pairs(taken) do
    unassigned[queue] = tail(unassigned[queue], number + 1)
    unassigned_count = unassigned_count - number
  end
  call_many('HSET', held_prefix .. worker, held)
  for number = 1, #held, 2 do
    locations[#locations + 1] = held[number]
    locations[#locations + 1] = 'w' .. worker
  end
end

-- A random sample of the waiting workers is usually enough, and reading all of 1,000 workers took
-- 1.6 ms.
local SAMPLE_SIZE = 32
local waiting = unassigned_count > 0
  and redis.call('HRANDFIELD', waiting_workers, SAMPLE_SIZE, 'WITHVALUES') or {}
if #waiting > 0 then
  local worker_count = #waiting / 2
  local is_sample = worker_count == SAMPLE_SIZE
  if is_sample then
    worker_count = redis.call('HLEN', waiting_workers)
  end
  local share, time = math.ceil(unassigned_count / worker_count), server_time()
  while unassigned_count > 0 and #waiting > 0 do
    for number = 1, #waiting, 2 do
      if unassigned_count > 0 then
        push_tasks(waiting[number], waiting[number + 1], share, time)
      end
    end
    waiting = is_sample and unassigned_count > 0 and redis.call('HGETALL', waiting_workers) or {}
    is_sample = false
  end
end
for _, queue in ipairs(queues) do
  for _, at in ipairs(unassigned[queue]) do
    queue_task(at)
  end
end
for _, queued in ipairs(queued_lanes) do
  local queue, lane = queued.queue, queued.lane
  call_many('ZADD', lane_key(lane_prefix, queue, lane), queued.members)
  call_many('ZADD', arrival_prefix .. queue, queued.arrivals)
  if not redis.call('ZSCORE', turn_prefix .. queue, lane) then
    add_turn(turn_prefix .. queue, lane, redis.call('INCR', last_turn))
  end
end
call_many('HSET', task_locations, locations)

local dropped = {}
for at = DROPPED[1], DROPPED[2] do
  dropped[#dropped + 1] = ARGV[at]
end
drop_tasks(
  task_locations, task_prefix, lane_prefix, arrival_prefix, held_prefix, dropped_prefix, dropped)
if STOPPED[1] <= STOPPED[2] then
  stop_tasks(
    {task_locations, task_prefix, lane_prefix, arrival_prefix, held_prefix, dropped_prefix, inbox},
    stopped_before, stopped_after, tail(ARGV, STOPPED[1]))
end

-- Timers are cleared before timers are set: a timer that the same commit clears and sets must end
-- set.
local cleared = {}
for at = CLEARED[1], CLEARED[2] do
  cleared[#cleared + 1] = ARGV[at]
end
call_many('ZREM', timers, cleared)
call_many('HDEL', timer_attempts, cleared)

local due_times, attempts = {}, {}
for at = SET[1], SET[2], 3 do
  local key, due, attempt = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  due_times[#due_times + 1] = due
  due_times[#due_times + 1] = key
  attempts[#attempts + 1] = key
  attempts[#attempts + 1] = attempt
end
call_many('ZADD', timers, due_times)
call_many('HSET', timer_attempts, attempts)

local created = {}
for at = MESSAGES[1], MESSAGES[2], 5 do
  local id, header, created_at = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  redis.call('XADD', inbox_prefix .. ARGV[at], '*', 'm', ARGV[at + 1])
  if id ~= '' and redis.call('HSETNX', all_headers, id, header) == 1 then
    index_execution(id, created_at)
    created[#created + 1] = id
  end
end

for at = LETTERS[1], LETTERS[2], 13 do
  local queue = ARGV[at]
  redis.call('SADD', letter_queues, queue)
  redis.call(
    'XADD', letter_prefix .. queue, 'MAXLEN', '~', ARGV[at + 1], '*', 'execution_id', ARGV[at + 3],
    'node_id', ARGV[at + 4], 'item', ARGV[at + 5], 'attempt', ARGV[at + 6], 'handler', ARGV[at + 7],
    'config', ARGV[at + 8], 'reason', ARGV[at + 9], 'original_message_id', ARGV[at + 10],
    'error', ARGV[at + 11], 'rejected_at', ARGV[at + 12], 'letter', ARGV[at + 2])
end

for at = CHANGES[1], CHANGES[2] do
  add_feed_entry(feed, ARGV[at])
end
add_pending_entries(feed, created)

redis.call('HSET', partition, 'sequence', sequence)
if consumed ~= '' then
  redis.call('HSET', partition, 'cursor', consumed)
  redis.call('XTRIM', inbox, 'MINID', '=', next_position)
end
return {1}
