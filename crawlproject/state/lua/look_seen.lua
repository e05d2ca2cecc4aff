-- Tells whether a request was ever enqueued, and changes nothing.
-- needs: seen_filter
--
-- A: digest (see preludes/seen_filter.lua).
-- Reply: 'exact'; 'bloom' (as a link, or, by its rate of false positives, not at all); or ''.

read_seen_filter()
return is_seen(A.digest)
