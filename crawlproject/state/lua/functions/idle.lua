-- Tells whether no work is left anywhere: the frontier, what waits beyond the sources' windows, the seed list and
-- every worker's processing list are empty.
--
-- A: nothing.
-- Reply: {1 or 0, the number of its last lease, the last batches that it has received}. With several shards it is idle only while
-- nothing waits here for others. Whatever comes to it from them and leaves it again changes one of these.
--
-- Neither the counters nor the due index are believed alone: somebody may have deleted them, until the audit mends them.
register('idle', function(ctx, K, A)
  local function is_idle()
    if math.max(ctx.counters.outstanding, ctx.counters.overflow) > 0 then return false end
    for _, key in ipairs(ctx.due_sets) do
      if redis.call('ZCARD', key) > 0 then return false end
    end
    -- What has nothing queued until a worker has fetched an extent is not due.
    for _, source in ipairs(redis.call('ZRANGE', K.overflow_due, 0, 999)) do
      if queues.has_overflow(ctx, source) then return false end
    end
    if redis.call('LLEN', K.seeds) > 0 then return false end
    for _, worker in ipairs(redis.call('ZRANGE', K.workers, 0, -1)) do
      if redis.call('EXISTS', K.leases_of .. worker, K.processing_of .. worker) > 0 then return false end
    end
    return true
  end

  local last = {redis.call('ZREVRANGE', K.received_of .. 'users', 0, 0)[1] or ''}
  for shard = 0, (A.shards or 0) - 1 do last[shard + 2] = redis.call('ZREVRANGE', K.received_of .. shard, 0, 0)[1] or '' end
  return {shards.waiting(ctx) == 0 and is_idle() and 1 or 0, text(ctx.counters.lease), table.concat(last, ' ')}
end, {'no-writes'})
