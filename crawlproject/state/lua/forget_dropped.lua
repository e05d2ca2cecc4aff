-- Gives up the places that dropped requests have in the seen filter.
-- needs: seen_filter
-- types: list dropped
--
-- A: digest (SHA-1 of the oldest dropped requests, joined by newlines); count (of them); digests (of each that of its
--    seed; false: it has none).
-- Reply: 1, or 0 when others have been there first: then they are no longer the oldest.

read_seen_filter()
local entries = redis.call('LRANGE', K.dropped, 0, A.count - 1)
if redis.sha1hex(table.concat(entries, '\n')) ~= A.digest then return 0 end
redis.call('LTRIM', K.dropped, A.count, -1)
for index = 1, A.count do
  if A.digests[index] then forget_seen(A.digests[index]) end
end
save_seen_filter()
return 1
