-- Returns the records of one kind in the order of their keys: {key, value, key, value...}.
-- ARGV: the key that the page starts after (in the syntax of ZRANGEBYLEX), the maximum number of
-- records
local records, record_names = unpack(KEYS)
local after, limit = unpack(ARGV)

local names = redis.call('ZRANGEBYLEX', record_names, after, '+', 'LIMIT', 0, limit)
local pairs_of_page = {}
for number, value in ipairs(get_many(records, names)) do
  pairs_of_page[#pairs_of_page + 1] = names[number]
  pairs_of_page[#pairs_of_page + 1] = value
end
return pairs_of_page
