-- Records of a kind by key: keys and values, one after the other.
-- KEYS  1 records of the kind  2 their names
-- ARGV  1 behind which name, as ZRANGEBYLEX has it  2 how many
local names = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], '+', 'LIMIT', 0, ARGV[2])
local found = {}
for number, value in ipairs(get_many(KEYS[1], names)) do
  found[#found + 1] = names[number]
  found[#found + 1] = value
end
return found
