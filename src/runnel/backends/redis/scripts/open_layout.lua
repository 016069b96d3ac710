-- Returns the stored layout. In a new store, first stores the given layout. Otherwise nothing is
-- written, so that a server that refuses writes can be read.
-- ARGV: shards, partitions
local layout = KEYS[1]
local shards, partitions = unpack(ARGV)

if redis.call('HEXISTS', layout, 'partitions') == 0 then
  redis.call('HSET', layout, 'shards', shards, 'partitions', partitions)
end
return redis.call('HMGET', layout, 'shards', 'partitions', 'incarnation')
