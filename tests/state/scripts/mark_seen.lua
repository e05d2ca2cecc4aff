-- Marks requests as seen, or looks whether they are, and does nothing else: what tests of the seen filter call.
--
-- A: digests (one string, 8 bytes each), what ('mark' or 'look').
-- Reply: {new, known}.
register('mark_seen', function(ctx, _, A)
  local counts = {0, 0}
  for start = 1, #A.digests, 8 do
    local digest, is_new = A.digests:sub(start, start + 7), nil
    if A.what == 'look' then is_new = not seen_filter.has(ctx, digest) else is_new = seen_filter.mark(ctx, digest) end
    local place = is_new and 1 or 2
    counts[place] = counts[place] + 1
  end
  seen_filter.save(ctx)
  return counts
end)
