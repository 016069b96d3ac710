-- Returns the stored layout. In a new store, first stores the given layout.
-- ARGV: shards, partitions
local layout = KEYS[1]
local shards, partitions = unpack(ARGV)

redis.call('HSETNX', layout, 'shards', shards)
redis.call('HSETNX', layout, 'partitions', partitions)
return redis.call('HMGET', layout, 'shards', 'partitions', 'incarnation')
