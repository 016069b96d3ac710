-- What several scripts share; put in front of each of them.

-- `unpack` fails near 8,000 values.
local CHUNK = 1000

-- Calls `command key values...` as often as the number of values needs; CHUNK is even, so that
-- pairs stay together. Returns the sum of the answers.
local function call_many(command, key, values)
  local sum = 0
  for first = 1, #values, CHUNK do
    local last = math.min(first + CHUNK - 1, #values)
    sum = sum + redis.call(command, key, unpack(values, first, last))
  end
  return sum
end

-- `HMGET key fields...`, for any number of fields: a list with false for each that is not there.
local function get_many(key, fields)
  local found = {}
  for first = 1, #fields, CHUNK do
    local last = math.min(first + CHUNK - 1, #fields)
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields, first, last))) do
      found[#found + 1] = value
    end
  end
  return found
end

local function tail(values, first)
  local found = {}
  for place = first, #values do
    found[#found + 1] = values[place]
  end
  return found
end

-- The id of the last entry that a stream ever had.
local function last_entry(key)
  if redis.call('EXISTS', key) == 0 then
    return '0-0'
  end
  local about = redis.call('XINFO', 'STREAM', key)
  for at = 1, #about, 2 do
    if about[at] == 'last-generated-id' then
      return about[at + 1]
    end
  end
end

-- In seconds.
local function server_time()
  local time = redis.call('TIME')
  return string.format('%s.%06d', time[1], time[2])
end

-- Whether the store has an archive that is not this one ('' for none): one that was wiped has none.
local function has_other_archive(layout, incarnation)
  local known = redis.call('HGET', layout, 'incarnation')
  return known and known ~= incarnation
end

-- The entries of the feed, its bounds and how a PENDING execution is told are those of feed_entries.py.
local function tell_feed(feed, entry)
  redis.call('XADD', feed, 'MAXLEN', '~', '10000', '*', 'c', entry)
end

local function tell_pending(feed, ids)
  for first = 1, #ids, 50 do
    tell_feed(feed, 'p' .. table.concat(ids, '\np', first, math.min(first + 49, #ids)))
  end
end

-- What a worker's hash says of a task: partition, '1' when it was started, beats missed.
local function parse_held(value)
  return string.match(value, '^(%d+) (%d)(%d)$')
end

-- Queued tasks leave their stream, claimed ones their worker, which is told.
local function drop_tasks(out, tasks, held, told, tokens)
  for number, where in ipairs(get_many(out, tokens)) do
    local token = tokens[number]
    if where and string.sub(where, 1, 1) == 'q' then
      local entry, queue = string.match(where, '^q(%S+) (.*)$')
      redis.call('XDEL', tasks .. queue, entry)
    elseif where then
      local worker = string.sub(where, 2)
      redis.call('HDEL', held .. worker, token)
      -- Bounded, should its worker never ask: a beat tells it the same.
      redis.call('XADD', told .. worker, 'MAXLEN', '~', '10000', '*', 't', token)
    end
  end
  call_many('HDEL', out, tokens)
end

-- Removes executions, with their blobs. Keys: 2 headers  3 listed  4 ids  5 final roots  6 final
-- children  7 keys of blobs  8 running executions, and the prefixes 9 history  10 blob.
local function forget_executions(keys, ids)
  for _, id in ipairs(ids) do
    redis.call('UNLINK', keys[9] .. id)
    local names = redis.call('ZRANGEBYLEX', keys[7], '[' .. id .. '/', '(' .. id .. '0')
    for _, name in ipairs(names) do
      redis.call('UNLINK', keys[10] .. name)
    end
    call_many('ZREM', keys[7], names)
  end
  call_many('HDEL', keys[2], ids)
  for _, number in ipairs({3, 4, 5, 6, 8}) do
    call_many('ZREM', keys[number], ids)
  end
end

-- The revision of a record; 0 when it is not there.
local function revision_of(records, key)
  local found = redis.call('HGET', records, key)
  return found and tonumber(string.match(found, '^(%d+) ')) or 0
end
