-- The floor of a commit: it stores one batch and the position in the inbox.
-- KEYS  1 partition  2 inbox  3 running  4 ended  5 headers  6 journal  7 tasks  8 out  9 ends
--       10 waiting workers, and the prefixes 11 history  12 held  13 hand
-- ARGV  1 sequence  2 position read  3 the position after it, then four lists, each with its
--       length and its items: histories (id, entry), started (created_at, id),
--       ended (id, header), tasks (token, task)
local position = 4
local function next_list()
  local first = position + 1
  position = first + 2 * tonumber(ARGV[position])
  return first, position - 1
end
-- `unpack` fails near 8,000 values, and a batch of 512 commands may issue more tasks than that.
local function call_many(command, key, values)
  for first = 1, #values, 1000 do
    redis.call(command, key, unpack(values, first, math.min(first + 999, #values)))
  end
end

local journal = {}
local first, last = next_list()
for at = first, last, 2 do
  journal[#journal + 1] = 'h' .. ARGV[at]
  journal[#journal + 1] = ARGV[at + 1]
  redis.call('RPUSH', KEYS[11] .. ARGV[at], ARGV[at + 1])
end

local started = {}
first, last = next_list()
for at = first, last do
  started[#started + 1] = ARGV[at]
end
call_many('ZADD', KEYS[3], started)

local ids, headers, ended = {}, {}, {}
first, last = next_list()
for at = first, last, 2 do
  ids[#ids + 1] = ARGV[at]
  headers[#headers + 1] = ARGV[at]
  headers[#headers + 1] = ARGV[at + 1]
  ended[#ended + 1] = ARGV[1]
  ended[#ended + 1] = ARGV[at]
  journal[#journal + 1] = 'x'
  journal[#journal + 1] = ARGV[at + 1]
end
call_many('HSET', KEYS[5], headers)
call_many('ZREM', KEYS[3], ids)
call_many('ZADD', KEYS[4], ended)

-- Waiting workers get tasks pushed; all other tasks are queued.
local out = {}
first, last = next_list()
if last >= first then
  local waiting = redis.call('HGETALL', KEYS[10])
  local share = math.ceil((last - first + 1) / #waiting)
  for number = 1, #waiting, 2 do
    local worker, tasks_max = waiting[number], math.min(tonumber(waiting[number + 1]), share)
    local bodies, held = {}, {}
    while first <= last and #bodies < tasks_max do
      bodies[#bodies + 1] = ARGV[first + 1]
      held[#held + 1] = ARGV[first]
      held[#held + 1] = '0 10'
      out[#out + 1] = ARGV[first]
      out[#out + 1] = 'w' .. worker
      first = first + 2
    end
    if #bodies > 0 then
      redis.call('HDEL', KEYS[10], worker)
      redis.call('PUBLISH', KEYS[13] .. worker, '[' .. table.concat(bodies, ',') .. ']')
      call_many('HSET', KEYS[12] .. worker, held)
    end
  end
end
for at = first, last, 2 do
  local entry = redis.call('XADD', KEYS[7], '*', 't', ARGV[at], 'b', ARGV[at + 1])
  out[#out + 1] = ARGV[at]
  out[#out + 1] = 'q' .. entry
end
call_many('HSET', KEYS[8], out)

redis.call('XADD', KEYS[6], ARGV[1] .. '-0', unpack(journal))
if #ids > 0 then
  redis.call('XADD', KEYS[9], 'MAXLEN', '~', '1000', '*', 'c', table.concat(ids, '\n'))
end
redis.call('HSET', KEYS[1], 'sequence', ARGV[1], 'cursor', ARGV[2])
redis.call('XTRIM', KEYS[2], 'MINID', '=', ARGV[3])
return 1
