-- Tells whether no work is left anywhere: the frontier, what waits beyond the sources' shares of it, the seed list and
-- every worker's processing list are empty.
--
-- A: halted_work, halted_overflow (requests and waiting seeds of halted sources, which do not count; none: all count).
-- Reply: 1 or 0. With several shards {1 or 0, how much this one has sent to others, and received, the number of its last
-- lease}: it is idle only with empty outboxes. Whatever comes to it and leaves it again changes one of these numbers.
register('idle', function(ctx, K, A)
  local function is_idle()
    local outstanding, overflow = unpack(redis.call('MGET', K.outstanding, K.overflow))
    if tonumber(outstanding or 0) > (A.halted_work or 0) then return false end
    if tonumber(overflow or 0) > (A.halted_overflow or 0) then return false end
    local workers = redis.call('ZRANGE', K.workers, 0, -1)
    if not A.halted_work then
      -- The count may be too low where others have taken requests away.
      if redis.call('EXISTS', unpack(ctx.due_sets)) > 0 then return false end
      for _, worker in ipairs(workers) do
        if redis.call('HLEN', K.leases_of .. worker) > 0 then return false end
      end
    end
    if redis.call('LLEN', K.seeds) > 0 then return false end
    for _, worker in ipairs(workers) do
      if redis.call('LLEN', K.processing_of .. worker) > 0 then return false end
    end
    return true
  end

  if not ctx.outbox then return is_idle() and 1 or 0 end
  local crossed, is_empty = redis.call('HMGET', K.crossings, 'sent', 'received'), true
  for shard = 0, A.shards - 1 do is_empty = is_empty and redis.call('EXISTS', K.outbox_of .. shard) == 0 end
  return {is_empty and is_idle() and 1 or 0, crossed[1] or '', crossed[2] or '', redis.call('GET', K.lease_sequence) or ''}
end, {'no-writes'})
