-- Tells whether a slot that was reserved further ahead than leases are may still be used.
-- needs: clock_guard, due, exclusions
-- reads: rates slots halted pulse
--
-- A: source; host (of the request); slot (us); late (us that it may be used late); min_rate; circuit.
-- Reply: 1, or 0 when there is no pulse, or the source is halted, held or at rate 0 by now, or excluded, or the host is, or
-- when the slot is over or may be: the clock was set forward since, so that others have the slots of this moment (see
-- preludes/clock_guard.lua).

local pulse = strings(K.pulse)
local source = A.source
look_up({source})
if not pulse or held_until(source) > 0 or effective_rate(source) <= 0 then return 0 end
if is_excluded(source) or is_host_excluded(A.host) then return 0 end
if resume > now or now > A.slot + A.late then return 0 end
return 1
