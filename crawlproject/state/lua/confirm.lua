-- Tells whether a slot that was reserved a while ago may still be used.
--
-- A: source, or domain, as for acquire; min_rate; circuit.
-- Reply: 1, or 0 when there is no pulse, or the source is halted, held or at rate 0 by now.

local source = A.source or source_of_domain(A.domain)
if redis.call('EXISTS', K.pulse) == 0 or held_until(source) > 0 or rate_of(source) <= 0 then return 0 end
return 1
