-- The requests of an extent come from the store: to the queues of their source, if it is still the first one there. Those of an
-- extent that was dropped are no longer in the seen filter.
--
-- A: source ('': it was dropped), rank; reference; entries (none: the extent is lost, or not legible, which is counted).
-- Reply: 1, or 0 when another worker was first.
register('take_extent', function(ctx, K, A)
  local source, is_dropped = A.source, A.source == ''
  local references = is_dropped and packs.dropped(ctx) or queues.extents_of(ctx, source)[A.rank]
  if redis.call('LINDEX', references, 0) ~= A.reference then return 0 end
  if not is_dropped then due_index.look_up(ctx, {source}) end
  redis.call('LPOP', references)
  packs.end_extent(ctx, A.reference)
  if is_dropped then
    seen_filter.forget(ctx, A.entries)
    return 1
  end
  for first = 1, #A.entries, 1000 do queues.append(ctx, source, {unpack(A.entries, first, math.min(first + 999, #A.entries))}) end
  local count = queues.requests_in(A.reference)
  queues.count(ctx, 'outstanding', #A.entries)
  queues.count(ctx, 'overflow', -count)
  queues.count(ctx, 'spilled', -count)
  statistics.note(ctx, '', 'overflow_lost', math.max(count - #A.entries, 0))
  redis.call('ZADD', K.overflow_due, text(ctx.now), source) -- it may need the next one
  queues.promote(ctx, source) -- where it was the last one, or lost
  ctx.touched[source] = true
  return 1
end)
