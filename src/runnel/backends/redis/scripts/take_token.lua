-- Takes a rate token on the server's clock; the bucket is the time at which it will be full again.
-- KEYS  1 bucket
-- ARGV  1 rate per second  2 burst  3 the longest wait, in seconds  4 a leap of the clock, likewise
-- Returns the seconds to wait, as text: a number would lose what is behind its point.
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local interval, burst = 1 / tonumber(ARGV[1]), tonumber(ARGV[2])
local full_at = tonumber(redis.call('GET', KEYS[1]) or now)
-- Further away than it can be: it was written before the clock was set back.
if full_at - now >= burst * interval + tonumber(ARGV[4]) then
  full_at = now
end
local wait = math.max(0, full_at - (burst - 1) * interval - now)
if wait <= tonumber(ARGV[3]) then
  full_at = math.max(full_at, now) + interval
  local left_ms = math.ceil((full_at - now) * 1000) + 1
  redis.call('SET', KEYS[1], string.format('%.17g', full_at), 'PX', string.format('%.0f', left_ms))
end
return string.format('%.17g', wait)
