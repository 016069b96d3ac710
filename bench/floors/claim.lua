-- The floor of a claim with its start check: it moves tasks from the stream to the worker's hash.
-- If there are none, it registers the worker, and a later commit pushes tasks to it.
-- KEYS  1 tasks  2 out  3 held by this worker  4 waiting workers
-- ARGV  1 worker  2 maximum number of tasks
local entries = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', ARGV[2])
if #entries == 0 then
  redis.call('HSET', KEYS[4], ARGV[1], ARGV[2])
  return {}
end
local bodies, ids, out, held = {}, {}, {}, {}
for number, entry in ipairs(entries) do
  local fields = entry[2]
  ids[number] = entry[1]
  bodies[number] = fields[4]
  out[#out + 1] = fields[2]
  out[#out + 1] = 'w' .. ARGV[1]
  held[#held + 1] = fields[2]
  held[#held + 1] = '0 10'
end
redis.call('XDEL', KEYS[1], unpack(ids))
redis.call('HSET', KEYS[2], unpack(out))
redis.call('HSET', KEYS[3], unpack(held))
return bodies
