-- Acquires a partition that is free, or whose lease has not changed since its owner was declared
-- dead.
-- ARGV: the three `judged` arguments describe the lease of the dead owner. `judged_owner` is '' for
-- a free partition. `archive` is '' for a new owner without an archive.
-- Returns {1, epoch, sequence, cursor}; {0, owner} if the lease is held; {2} if the store is paired
-- with another archive.
local partition, layout = unpack(KEYS)
local owner, nonce, judged_owner, judged_epoch, judged_counter, epoch_min, archive = unpack(ARGV)

if has_other_archive(layout, archive) then
  return {2}
end
local current_owner, current_epoch, counter, sequence, cursor =
  unpack(redis.call('HMGET', partition, 'owner', 'epoch', 'counter', 'sequence', 'cursor'))
if current_owner then
  local is_judged = judged_owner == current_owner and judged_epoch == current_epoch
    and judged_counter == (counter or '0')
  if not is_judged then
    return {0, current_owner}
  end
end
local epoch = math.max(tonumber(current_epoch or '0') + 1, tonumber(epoch_min))
redis.call('HSET', partition, 'owner', owner, 'nonce', nonce, 'epoch', epoch)
return {1, epoch, sequence or '0', cursor or '0-0'}
