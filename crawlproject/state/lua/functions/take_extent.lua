-- The requests of an extent come from the store: to the queues of their source, if it is still the first one there; or, of one
-- that was dropped, to the dropped ones, for their places in the seen filter.
--
-- A: source, rank (none: it was dropped); reference; entries (none: the extent is lost, or not legible, which is counted);
--    high_water; min_rate; circuit.
-- Reply: 1, or 0 when another worker was first.
register('take_extent', function(ctx, K, A)
  local source = A.source
  local references = source and queues.extents_of(ctx, source)[A.rank] or K.dropped_extents
  if redis.call('LINDEX', references, 0) ~= A.reference then return 0 end
  if source then due_index.look_up(ctx, {source}) end
  redis.call('LPOP', references)
  for first = 1, #A.entries, 1000 do
    local some = {unpack(A.entries, first, math.min(first + 999, #A.entries))}
    if source then queues.append(ctx, source, some) else redis.call('RPUSH', K.dropped, unpack(some)) end
  end
  packs.end_extent(ctx, A.reference)
  if not source then return 1 end
  local count = queues.requests_in(A.reference)
  queues.count(ctx, 'outstanding', #A.entries)
  queues.count(ctx, 'overflow', -count)
  queues.count(ctx, 'spilled', -count)
  statistics.add(K.totals, 'overflow_lost', math.max(count - #A.entries, 0))
  redis.call('ZADD', K.overflow_due, text(ctx.now), source) -- it may need the next one
  queues.promote(ctx, source) -- where it was the last one, or lost
  due_index.schedule_all(ctx, {[source] = true})
  return 1
end)
