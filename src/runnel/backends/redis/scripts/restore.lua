-- Writes back one part of an aggregate's history; the first part replaces what there is.
-- KEYS  1 partition  2 its running executions  3 headers  4 listed  5 ids  6 its concurrency keys
--       7 its final roots  8 its final children  9 history of the aggregate
-- ARGV  1 epoch  2 nonce  3 id  4 '1' for the first part  5 header ('' for a concurrency key)
--       6 created_at  7 kind of the header  8 sequence of the last change; then entries
-- Returns {1}, or {0, the current epoch}.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'nonce')
if now[1] ~= ARGV[1] or now[2] ~= ARGV[2] then
  return {0, now[1] or '0'}
end
local id, kind = ARGV[3], ARGV[7]
if ARGV[4] == '1' then
  redis.call('DEL', KEYS[9])
end
call_many('RPUSH', KEYS[9], tail(ARGV, 9))
if ARGV[5] == '' then
  redis.call('SADD', KEYS[6], id)
  return {1}
end
redis.call('HSET', KEYS[3], id, ARGV[5])
redis.call('ZADD', KEYS[4], ARGV[6], id)
redis.call('ZADD', KEYS[5], 0, id)
redis.call('ZREM', KEYS[2], id)
if kind == 'r' then
  redis.call('ZADD', KEYS[2], ARGV[6], id)
elseif kind == 'f' then
  redis.call('ZADD', KEYS[7], ARGV[8], id)
elseif kind == 'c' then
  redis.call('ZADD', KEYS[8], ARGV[8], id)
end
return {1}
