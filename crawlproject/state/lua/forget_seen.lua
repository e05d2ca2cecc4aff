-- Gives up the places that requests have in a seen filter, but for what Bloom filters have of them.
-- needs: seen_filter
--
-- A: digests (see preludes/seen_filter.lua).
-- Reply: nothing.

read_seen_filter()
for _, digest in ipairs(A.digests) do forget_seen(digest) end
save_seen_filter()
