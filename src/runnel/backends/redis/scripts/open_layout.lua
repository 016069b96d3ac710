-- Returns the stored layout; stores the given one first if there is none.
-- ARGV: shards, partitions
local layout = KEYS[1]
local shards, partitions = unpack(ARGV)

redis.call('HSETNX', layout, 'shards', shards)
redis.call('HSETNX', layout, 'partitions', partitions)
return redis.call('HMGET', layout, 'shards', 'partitions', 'incarnation')
