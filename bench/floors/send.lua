-- The floor of a submit: it adds a message to the inbox and the execution to the lists.
-- KEYS  1 inbox  2 headers  3 listed  4 ids
-- ARGV  per execution: id, message, header, created_at
local headers, listed, ids = {}, {}, {}
for at = 1, #ARGV, 4 do
  redis.call('XADD', KEYS[1], '*', 'm', ARGV[at + 1])
  headers[#headers + 1] = ARGV[at]
  headers[#headers + 1] = ARGV[at + 2]
  listed[#listed + 1] = ARGV[at + 3]
  listed[#listed + 1] = ARGV[at]
  ids[#ids + 1] = 0
  ids[#ids + 1] = ARGV[at]
end
redis.call('HSET', KEYS[2], unpack(headers))
redis.call('ZADD', KEYS[3], unpack(listed))
redis.call('ZADD', KEYS[4], unpack(ids))
return 1
