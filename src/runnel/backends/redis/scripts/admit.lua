-- Counts a request on the server's clock, unless there were enough in the window before it.
-- KEYS  1 window
-- ARGV  1 limit  2 window, in microseconds
-- Returns the microseconds to wait, 0 when it was counted; as text, for there may be many.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1e6 + tonumber(time[2])
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now - window))
local asked = redis.call('ZCARD', KEYS[1])
if asked >= limit then
  local oldest = redis.call('ZRANGE', KEYS[1], asked - limit, asked - limit, 'WITHSCORES')
  -- At most a window: its time may lie ahead of a clock that was set back.
  return string.format('%.0f', math.min(window, tonumber(oldest[2]) + window - now))
end
-- Two of the same microsecond differ by how many there were before them.
local at = string.format('%.0f', now)
redis.call('ZADD', KEYS[1], at, at .. '-' .. asked)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil(window / 1000) + 1))
return '0'
