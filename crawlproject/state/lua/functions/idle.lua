-- Tells whether no work is left anywhere: the frontier, what waits beyond the sources' shares of it, the seed list and
-- every worker's processing list are empty.
--
-- A: halted_work, halted_overflow (requests and waiting seeds of halted sources, which do not count; none: all count).
-- Reply: {1 or 0, the number of its last lease, the last batches that it has received}. With several shards it is idle only while
-- nothing waits here for others. Whatever comes to it from them and leaves it again changes one of these.
register('idle', function(ctx, K, A)
  local function is_idle()
    local outstanding, overflow = unpack(redis.call('MGET', K.outstanding, K.overflow))
    if tonumber(outstanding or 0) > (A.halted_work or 0) then return false end
    if tonumber(overflow or 0) > (A.halted_overflow or 0) then return false end
    local workers = redis.call('ZRANGE', K.workers, 0, -1)
    if not A.halted_work then
      -- The count may be too low where others have taken requests away.
      if redis.call('EXISTS', K.quarantine, unpack(ctx.due_sets)) > 0 then return false end
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

  local last = {}
  for shard = 0, (A.shards or 0) - 1 do last[shard + 1] = redis.call('ZREVRANGE', K.received_of .. shard, 0, 0)[1] or '' end
  return {shards.waiting(ctx) == 0 and is_idle() and 1 or 0, redis.call('GET', K.lease_sequence) or '', table.concat(last, ' ')}
end, {'no-writes'})
