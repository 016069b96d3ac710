-- Takes a rate token on the server's clock. A bucket is stored as the time when it is full again.
-- ARGV: rate per second, burst, the maximum wait in seconds, the smallest clock jump in seconds
-- that is detected
-- Returns the seconds to wait, as text, because Redis truncates numbers to integers.
local bucket = KEYS[1]
local rate, burst, wait_s_max, clock_jump_s =
  tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local interval_s = 1 / rate
local full_at = tonumber(redis.call('GET', bucket) or now)
-- A stored time too far in the future was written before the clock was turned back.
if full_at - now >= burst * interval_s + clock_jump_s then
  full_at = now
end
local wait_s = math.max(0, full_at - (burst - 1) * interval_s - now)
if wait_s <= wait_s_max then
  full_at = math.max(full_at, now) + interval_s
  local ttl_ms = math.ceil((full_at - now) * 1000) + 1
  redis.call('SET', bucket, string.format('%.17g', full_at), 'PX', string.format('%.0f', ttl_ms))
end
return string.format('%.17g', wait_s)
