-- The requests of an extent come to the queues of their source, if it is still the first one.
--
-- A: source; rank; reference; entries (none: the extent is lost, or not legible, which is counted); high_water; min_rate;
--    circuit.
-- Reply: 1, or 0 when another worker was first.
register('refill_commit', function(ctx, K, A)
  local source, references = A.source, queues.extents_of(ctx, A.source)[A.rank]
  if redis.call('LINDEX', references, 0) ~= A.reference then return 0 end
  due_index.look_up(ctx, {source})
  redis.call('LPOP', references)
  local count = queues.requests_in(A.reference)
  local lost = math.max(count - #A.entries, 0)
  for first = 1, #A.entries, 1000 do
    queues.append(ctx, source, {unpack(A.entries, first, math.min(first + 999, #A.entries))})
  end
  redis.call('INCRBY', K.outstanding, #A.entries)
  redis.call('DECRBY', K.overflow, count)
  redis.call('DECRBY', K.spilled, count)
  statistics.add(K.totals, 'overflow_lost', lost)
  packs.end_extent(ctx, A.reference)
  redis.call('ZADD', K.overflow_due, text(ctx.now), source) -- it may need the next one
  queues.promote(ctx, source) -- where it was the last one, or lost
  due_index.schedule_all(ctx, {[source] = true})
  return 1
end)
