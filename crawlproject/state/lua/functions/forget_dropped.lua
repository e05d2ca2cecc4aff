-- Gives up the places that dropped requests have in the seen filter.
--
-- A: digest (SHA-1 of the oldest dropped requests, joined by newlines); count (of them); digests (of each that of its
--    seed; false: it has none).
-- Reply: 1, or 0 when others have been there first: then they are no longer the oldest.
register('forget_dropped', function(ctx, K, A)
  local entries = redis.call('LRANGE', K.dropped, 0, A.count - 1)
  if redis.sha1hex(table.concat(entries, '\n')) ~= A.digest then return 0 end
  redis.call('LTRIM', K.dropped, A.count, -1)
  for index = 1, A.count do
    if A.digests[index] then seen_filter.forget(ctx, A.digests[index]) end
  end
  seen_filter.save(ctx)
  return 1
end, {'allow-oom'})
