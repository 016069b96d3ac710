-- Counts a request on the server's clock, unless the window already has `limit` requests.
-- ARGV: limit, window in microseconds
-- Returns the microseconds to wait, or 0 if the request was counted. The result is text, because
-- the number can be large.
local requests = KEYS[1]
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])

local time = redis.call('TIME')
local now = tonumber(time[1]) * 1e6 + tonumber(time[2])
redis.call('ZREMRANGEBYSCORE', requests, '-inf', string.format('%.0f', now - window))
local count = redis.call('ZCARD', requests)
if count >= limit then
  local oldest = redis.call('ZRANGE', requests, count - limit, count - limit, 'WITHSCORES')
  -- The wait is at most one window: if the clock was turned back, the oldest request is in the
  -- future.
  return string.format('%.0f', math.min(window, tonumber(oldest[2]) + window - now))
end
-- The count distinguishes two requests of the same microsecond.
local now_text = string.format('%.0f', now)
redis.call('ZADD', requests, now_text, now_text .. '-' .. count)
redis.call('PEXPIRE', requests, string.format('%.0f', math.ceil(window / 1000) + 1))
return '0'
