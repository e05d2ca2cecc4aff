-- Exchanges a slot that was missed, because the connection took too long, for the present moment or the next slot.
-- needs: clock_guard, due, exclusions, leases
-- reads: rates slots halted pulse
--
-- A: source; host (of the request); missed (the slot, us) and rate (when it was given out); within (us ahead that the new
--    one may be); worker and lease (none: a request without one); min_rate; circuit; pace.
-- Reply: {moment, slot, rate}; slot is '' when there is none so soon, without a pulse, for a source that is halted, held,
-- excluded (or the host is) or at rate 0, and for a lease that this worker has no more, or that was granted before the
-- circuit changed its state.
--
-- If no slot was given out after the one that was missed, the request may go out now, and the next slot moves. So a slow
-- source that takes long to connect and keeps no connection open is not asked half as often, or never. Where the spider has
-- a delay of its own, that holds for the slots that it has used itself: it may have leased another request since.

local source, pulse = A.source, strings(K.pulse)
look_up({source})
local none = {text(now), '', ''}
local rate = effective_rate(source)
local interval = interval_of(rate)
if not pulse or resume > now or not interval or held_until(source) > 0 then return none end
if is_excluded(source) or is_host_excluded(A.host) then return none end
if A.lease then
  local _, generation = parts_of(A.lease)
  local leases = K.leases_of .. A.worker
  require_type('hash', leases)
  if generation ~= circuit_of(source).generation or redis.call('HEXISTS', leases, A.lease) == 0 then return none end
end

local last = slot_of(source)
-- Only where the rate is still the same, or was changed by set_rates, which moves the next slot: else nobody can tell.
-- And not where it was lowered: the one before the missed slot may have gone out a moment ago.
local is_last = last and rate >= A.rate and math.abs(last - A.missed - interval) < 100
local slot = is_last and now or next_slot(source)
if slot > now + A.within then return none end
if A.lease and A.pace > 0 then
  undo_pace(source, A.missed)
  if paced_until(source) > slot then return none end
  set_pace(source, slot + A.pace)
end
keep_time()
set_slot(source, math.max(last or 0, slot + interval))
save_slots()
save_paces()
return {text(now), text(slot), string.format('%.17g', rate)}
