-- The requests of an extent that was dropped are among the dropped ones, for their places in the seen filter.
--
-- A: reference; entries (none: it is lost).
-- Reply: 1, or 0 when another worker was first.
register('drop_extent', function(ctx, K, A)
  if redis.call('LINDEX', K.dropped_extents, 0) ~= A.reference then return 0 end
  redis.call('LPOP', K.dropped_extents)
  for first = 1, #A.entries, 1000 do
    redis.call('RPUSH', K.dropped, unpack(A.entries, first, math.min(first + 999, #A.entries)))
  end
  packs.end_extent(ctx, A.reference)
  return 1
end, {'allow-oom'})
