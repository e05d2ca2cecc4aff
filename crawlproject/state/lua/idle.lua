-- Tells whether no work is left anywhere: the frontier, what waits beyond the sources' shares of it, the seed list and
-- every worker's processing list are empty.
-- needs: queues, shards
-- types: list quarantine seeds, zset workers
-- few: zset due_20 due_10 due_00 due_21 due_11 due_01 due_22 due_12 due_02 due_23 due_13 due_03 due_24 due_14 due_04
-- reads: outstanding overflow lease_sequence
--
-- A: halted_work, halted_overflow (requests and waiting seeds of halted sources, which do not count; none: all count).
-- Reply: 1 or 0. With several shards {1 or 0, how much this one has sent to others, and received, the number of its last
-- lease}: it is idle only with empty outboxes. Whatever comes to it and leaves it again changes one of these numbers.

local function is_idle()
  local outstanding, overflow = strings(K.outstanding, K.overflow)
  outstanding, overflow = counter(K.outstanding, outstanding), counter(K.overflow, overflow)
  if outstanding > (A.halted_work or 0) or overflow > (A.halted_overflow or 0) then return false end
  local workers = redis.call('ZRANGE', K.workers, 0, -1)
  if not A.halted_work then
    -- The count may be too low where others have put requests there, or taken some away.
    local due = redis.call('EXISTS', K.due_24, K.due_23, K.due_22, K.due_21, K.due_20,
      K.due_14, K.due_13, K.due_12, K.due_11, K.due_10, K.due_04, K.due_03, K.due_02, K.due_01, K.due_00)
    if due > 0 then return false end
    if redis.call('LLEN', K.quarantine) > 0 then return false end
    for _, worker in ipairs(workers) do
      if (attempt('HLEN', K.leases_of .. worker) or 0) > 0 then return false end
    end
  end
  if redis.call('LLEN', K.seeds) > 0 then return false end
  for _, worker in ipairs(workers) do
    if (attempt('LLEN', K.processing_of .. worker) or 0) > 0 then return false end
  end
  return true
end

if not outbox then return is_idle() and 1 or 0 end
local crossed, is_empty = redis.call('HMGET', K.crossings, 'sent', 'received'), true
for shard = 0, A.shards - 1 do is_empty = is_empty and redis.call('EXISTS', K.outbox_of .. shard) == 0 end
return {is_empty and is_idle() and 1 or 0, crossed[1] or '', crossed[2] or '', strings(K.lease_sequence) or ''}
