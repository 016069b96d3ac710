-- The layout: as it is stored, or as it is wanted when there is none yet.
-- KEYS  1 layout
-- ARGV  1 shards  2 partitions
redis.call('HSETNX', KEYS[1], 'shards', ARGV[1])
redis.call('HSETNX', KEYS[1], 'partitions', ARGV[2])
return redis.call('HMGET', KEYS[1], 'shards', 'partitions', 'incarnation')
