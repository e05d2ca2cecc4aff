-- Marks requests as seen, or looks whether they are, and does nothing else: what benchmarks and tests of the seen filter call.
-- needs: seen_filter
-- types: hash totals
-- reads: outstanding
--
-- A: digests (one string, 32 bytes each), is_link, what ('mark', 'look', or 'nothing' but what any call does).
-- Reply: {new, known}, or {0, 0}.

open_seen_filter()
local counts = {0, 0}
for start = 1, A.what == 'nothing' and 0 or #A.digests, 32 do
  local digest, new, key = A.digests:sub(start, start + 31), nil, nil
  if A.what == 'look' then new = is_seen(digest) == '' and 1 or 0 else new, key = mark_seen(digest, A.is_link) end
  if not new then error(wrong(key), 0) end
  counts[2 - new] = counts[2 - new] + 1
end
save_seen_filter()
return counts
