-- Marks requests as seen, or looks whether they are, and does nothing else: what tests of the seen filter call.
--
-- A: digests (one string, 32 bytes each), is_link, what ('mark', 'look', or 'nothing' but what any call does).
-- Reply: {new, known}, or {0, 0}.
register('mark_seen', function(ctx, _, A)
  local counts = {0, 0}
  for start = 1, A.what == 'nothing' and 0 or #A.digests, 32 do
    local digest, new = A.digests:sub(start, start + 31), nil
    if A.what == 'look' then new = seen_filter.kind_of(ctx, digest) == '' and 1 or 0 else new = seen_filter.mark(ctx, digest, A.is_link) end
    counts[2 - new] = counts[2 - new] + 1
  end
  seen_filter.save(ctx)
  return counts
end)
