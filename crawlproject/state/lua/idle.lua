-- Tells whether no work is left anywhere: the frontier, what waits beyond the sources' shares of it, the seed list and
-- every worker's processing list are empty.
-- needs: queues
-- types: list quarantine seeds, zset workers, hash places
-- reads: outstanding overflow due_fast due_mid due_slow
--
-- A: halted_work, halted_overflow (requests and waiting seeds of halted sources, which do not count; none: all count).
-- Reply: 1 or 0.

local outstanding, overflow = strings(K.outstanding, K.overflow)
outstanding, overflow = counter(K.outstanding, outstanding), counter(K.overflow, overflow)
if outstanding > (A.halted_work or 0) or overflow > (A.halted_overflow or 0) then return 0 end
local workers = redis.call('ZRANGE', K.workers, 0, -1)
if not A.halted_work then
  -- The count may be too low where others have put requests there, or taken some away.
  if redis.call('EXISTS', K.places, K.due_fast, K.due_mid, K.due_slow) > 0 then return 0 end
  if redis.call('LLEN', K.quarantine) > 0 then return 0 end
  for _, worker in ipairs(workers) do
    if (attempt('HLEN', K.leases_of .. worker) or 0) > 0 then return 0 end
  end
end
if redis.call('LLEN', K.seeds) > 0 then return 0 end
for _, worker in ipairs(workers) do
  if (attempt('LLEN', K.processing_of .. worker) or 0) > 0 then return 0 end
end
return 1
