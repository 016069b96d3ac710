-- Functions that several scripts share. Each script is sent together with those of the functions
-- that it uses.

-- The maximum number of values per call: `unpack` fails near 8,000.
local CHUNK = 1000

-- Calls `command key values...` in chunks and returns the sum of the replies. CHUNK is even, so
-- that pairs of values stay together.
local function call_many(command, key, values)
  local sum = 0
  for first = 1, #values, CHUNK do
    local last = math.min(first + CHUNK - 1, #values)
    sum = sum + redis.call(command, key, unpack(values, first, last))
  end
  return sum
end

-- Calls `HMGET key fields...` in chunks; the result has false for each field that does not exist.
local function get_many(key, fields)
  local values = {}
  for first = 1, #fields, CHUNK do
    local last = math.min(first + CHUNK - 1, #fields)
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields, first, last))) do
      values[#values + 1] = value
    end
  end
  return values
end

-- Returns the values from the index `first` on.
local function tail(values, first)
  local selected = {}
  for at = first, #values do
    selected[#selected + 1] = values[at]
  end
  return selected
end

-- Returns the time of the server in milliseconds.
local function server_time_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the time of the server in seconds, as text.
local function server_time()
  local time = redis.call('TIME')
  return string.format('%s.%06d', time[1], time[2])
end

-- Returns true if the store is paired with another archive than the given one ('' for none). A
-- wiped store has no archive.
local function has_other_archive(layout, incarnation)
  local stored = redis.call('HGET', layout, 'incarnation')
  return stored and stored ~= incarnation
end

-- Adds an entry to the feed. feed_log.py defines the format of entries and the limits used here.
local function add_feed_entry(feed, entry)
  redis.call('XADD', feed, 'MAXLEN', '~', '10000', '*', 'c', entry)
end

-- Adds feed entries for executions that are now PENDING.
local function add_pending_entries(feed, ids)
  for first = 1, #ids, 50 do
    add_feed_entry(feed, 'p' .. table.concat(ids, '\np', first, math.min(first + 49, #ids)))
  end
end

-- The state of a held task is '0' before the start, and also if its code runs in a child process.
-- After the start it is '1'. Once the task is stopped, so that its code has to end, '0' becomes '3'
-- and '1' becomes '2'.
local STOPPED_STATES = { ['0'] = '3', ['1'] = '2', ['2'] = '2', ['3'] = '3' }

local function is_stopping(state)
  return state == '2' or state == '3'
end

local function has_started(state)
  return state == '1' or state == '2'
end

-- Parses the value of a held task: partition, state, missed heartbeats.
local function parse_held(value)
  return string.match(value, '^(%d+) (%d)(%d)$')
end

-- Returns the key of a lane. The length comes first, because both names can contain any character.
local function lane_key(lane_prefix, queue, lane)
  return lane_prefix .. #queue .. ':' .. queue .. ':' .. lane
end

-- Returns the priority of a lane, with which its name begins.
local function lane_priority(lane)
  return tonumber(string.match(lane, '^%-?%d+'))
end

-- Puts a lane at the end of the turns of its priority. A score is exact below 2^53, which leaves
-- more than 10^13 turns for each of the 201 priorities.
local function add_turn(turns, lane, turn)
  redis.call('ZADD', turns, string.format('%.0f', turn - lane_priority(lane) * 2 ^ 44), lane)
end

-- Returns the part of a lane's member before the task. It is unique, because it has the token.
-- Neither a sort key nor a token contains a line feed.
local function member_start(sort_key, token)
  return sort_key .. '\n' .. token .. '\n'
end

-- Removes a queued task from its lane. `location` is its value in the hash of task locations.
-- Returns the partition of the task.
local function remove_from_lane(lane_prefix, arrival_prefix, location, token)
  local partition, queue_length, lane_length, start =
    string.match(location, '^l(%d+) (%d+) (%d+) ()')
  local lane_start = start + queue_length
  local queue = string.sub(location, start, lane_start - 1)
  local lane = string.sub(location, lane_start, lane_start + lane_length - 1)
  local first = member_start(string.sub(location, lane_start + lane_length), token)
  redis.call('ZREM', arrival_prefix .. queue, token)
  redis.call(
    'ZREMRANGEBYLEX', lane_key(lane_prefix, queue, lane), '[' .. first, '[' .. first .. '\255')
  return partition
end

-- Deletes a task from its lane, or from the stream in which an earlier version queued it. Returns
-- false if the task is not queued.
local function remove_queued(task_prefix, lane_prefix, arrival_prefix, location, token)
  local kind = location and string.sub(location, 1, 1)
  if kind == 'l' then
    remove_from_lane(lane_prefix, arrival_prefix, location, token)
  elseif kind == 'q' then
    local entry, queue = string.match(location, '^q(%S+) (.*)$')
    redis.call('XDEL', task_prefix .. queue, entry)
  else
    return false
  end
  return true
end

-- Drops tasks. Deletes a queued task from its queue. Removes a claimed task from its worker and
-- notifies the worker.
local function drop_tasks(
  task_locations, task_prefix, lane_prefix, arrival_prefix, held_prefix, dropped_prefix, tokens)
  for number, location in ipairs(get_many(task_locations, tokens)) do
    local token = tokens[number]
    local was_queued = remove_queued(task_prefix, lane_prefix, arrival_prefix, location, token)
    if location and not was_queued then
      local worker = string.sub(location, 2)
      redis.call('HDEL', held_prefix .. worker, token)
      -- The stream has a maximum length, in case the worker never reads it. The reply to a
      -- heartbeat also names the dropped tasks.
      redis.call('XADD', dropped_prefix .. worker, 'MAXLEN', '~', '10000', '*', 't', token)
    end
  end
  call_many('HDEL', task_locations, tokens)
end

-- Stops tasks. Deletes a queued task from its queue and reports that it stopped. Leaves a claimed
-- task with its worker and notifies the worker, which reports the end of the task's code.
local function stop_tasks(keys, message_before, message_after, tokens)
  local task_locations, task_prefix, lane_prefix, arrival_prefix, held_prefix, dropped_prefix,
    inbox = unpack(keys)
  local ended = {}
  for number, location in ipairs(get_many(task_locations, tokens)) do
    local token = tokens[number]
    if remove_queued(task_prefix, lane_prefix, arrival_prefix, location, token) then
      redis.call('XADD', inbox, '*', 'm', message_before .. token .. message_after)
      ended[#ended + 1] = token
    elseif location then
      local worker = string.sub(location, 2)
      local value = redis.call('HGET', held_prefix .. worker, token)
      if value then
        local partition, state, missed = parse_held(value)
        local stopped = partition .. ' ' .. STOPPED_STATES[state] .. missed
        redis.call('HSET', held_prefix .. worker, token, stopped)
      end
      redis.call('XADD', dropped_prefix .. worker, 'MAXLEN', '~', '10000', '*', 't', token)
    end
  end
  call_many('HDEL', task_locations, ended)
end

-- Removes executions with their blobs. The first key is the partition, which only the calling
-- script uses.
local function forget_executions(keys, ids)
  local _, headers, ids_by_created_at, all_ids, ended_roots, ended_children, blob_keys, running,
    history_prefix, blob_prefix = unpack(keys)
  for _, id in ipairs(ids) do
    redis.call('UNLINK', history_prefix .. id)
    local names = redis.call('ZRANGEBYLEX', blob_keys, '[' .. id .. '/', '(' .. id .. '0')
    for _, name in ipairs(names) do
      redis.call('UNLINK', blob_prefix .. name)
    end
    call_many('ZREM', blob_keys, names)
  end
  call_many('HDEL', headers, ids)
  for _, index in ipairs({ids_by_created_at, all_ids, ended_roots, ended_children, running}) do
    call_many('ZREM', index, ids)
  end
end

-- Returns the revision of a record; 0 if it does not exist.
local function read_revision(records, key)
  local value = redis.call('HGET', records, key)
  return value and tonumber(string.match(value, '^(%d+) ')) or 0
end
