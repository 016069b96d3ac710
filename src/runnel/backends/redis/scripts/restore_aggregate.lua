-- Restores one part of the history of an aggregate; the first part replaces the stored history.
-- ARGV: epoch, nonce, id, '1' for the first part, header ('' for a concurrency key), created_at,
-- kind of the header as in commit.lua, sequence of the last change; then history entries.
-- Returns {1}, or {0, the current epoch} if the lease is lost.
local partition, running, headers, ids_by_created_at, ids, concurrency_keys, ended_roots,
  ended_children, history = unpack(KEYS)
local epoch, nonce, id, is_first, header, created_at, kind, sequence =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5], ARGV[6], ARGV[7], ARGV[8]

local current = redis.call('HMGET', partition, 'epoch', 'nonce')
if current[1] ~= epoch or current[2] ~= nonce then
  return {0, current[1] or '0'}
end
if is_first then
  redis.call('DEL', history)
end
call_many('RPUSH', history, tail(ARGV, 9))
if header == '' then
  redis.call('SADD', concurrency_keys, id)
  return {1}
end
redis.call('HSET', headers, id, header)
redis.call('ZADD', ids_by_created_at, created_at, id)
redis.call('ZADD', ids, 0, id)
redis.call('ZREM', running, id)
if kind == 'r' then
  redis.call('ZADD', running, created_at, id)
elseif kind == 'f' then
  redis.call('ZADD', ended_roots, sequence, id)
elseif kind == 'c' then
  redis.call('ZADD', ended_children, sequence, id)
end
return {1}
