-- Takes a partition that is free, or whose lease is still the one that was judged.
-- KEYS  1 partition  2 layout
-- ARGV  1 owner  2 nonce  3 owner judged dead ('' for none)  4 its epoch  5 its counter
--       6 the least epoch to take  7 the archive that the owner writes for ('' for none)
-- Returns {1, epoch, sequence, cursor}, or {0, the owner}, or {2} when the store has another archive.
if has_other_archive(KEYS[2], ARGV[7]) then
  return {2}
end
local now = redis.call('HMGET', KEYS[1], 'owner', 'epoch', 'counter', 'sequence', 'cursor')
if now[1] then
  local is_judged = ARGV[3] == now[1] and ARGV[4] == now[2] and ARGV[5] == (now[3] or '0')
  if not is_judged then
    return {0, now[1]}
  end
end
local epoch = math.max(tonumber(now[2] or '0') + 1, tonumber(ARGV[6]))
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'nonce', ARGV[2], 'epoch', epoch)
return {1, epoch, now[4] or '0', now[5] or '0-0'}
