-- Tells of requests whether they were ever enqueued, and changes nothing.
-- needs: seen_filter
--
-- A: digests (see preludes/seen_filter.lua).
-- Reply: of each 'exact'; 'bloom' (as a link, or, by its rate of false positives, not at all); or ''.

read_seen_filter()
local reply = {}
for index, digest in ipairs(A.digests) do reply[index] = is_seen(digest) end
return reply
