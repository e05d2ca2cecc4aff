-- Tells whether no work is left anywhere: the frontier, what waits beyond the sources' shares of it, the seed list and
-- every worker's processing list are empty.
-- needs: queues
-- types: list quarantine seeds, zset workers due_fast due_mid due_slow, set halted
-- reads: outstanding overflow
--
-- A: halted_too (work of halted sources does not count).
-- Reply: 1 or 0.

local outstanding, overflow = strings(K.outstanding, K.overflow)
outstanding, overflow = counter(K.outstanding, outstanding), counter(K.overflow, overflow)
if A.halted_too and outstanding > 0 then
  for _, source in ipairs(redis.call('SMEMBERS', K.halted)) do
    outstanding = outstanding - backlog_of(source)
    if overflow > 0 then overflow = overflow - overflow_of(source) end
  end
  for _, quarantined in ipairs(redis.call('LRANGE', K.quarantine, 0, -1)) do
    outstanding = outstanding - redis.call('SISMEMBER', K.halted, quarantined:match('^(.-)\n') or '')
  end
end
if outstanding > 0 or overflow > 0 then return 0 end
local workers = redis.call('ZRANGE', K.workers, 0, -1)
if not A.halted_too then
  -- The count may be too low where others have put requests there, or taken some away.
  for _, tier in ipairs({K.due_fast, K.due_mid, K.due_slow}) do
    if redis.call('ZCARD', tier) > 0 then return 0 end
  end
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
