-- Exchanges a slot that was missed, because the connection took too long, for the present moment or the next slot; or tells whether
-- one that was reserved further ahead than leases are may still be used.
--
-- A: source; host (of the request); missed (the slot, us) and rate (when it was given out); within (us ahead that the new
--    one may be), or late (us that this one may be used late: then it is not exchanged); worker and lease (none: a request
--    without one); min_rate; circuit; pace.
-- Reply: {moment, slot, rate}; slot is '' when there is none so soon, without a pulse, for a source that is halted, held,
-- excluded (or the host is) or at rate 0, and for a lease that this worker has no more, or that was granted before the
-- circuit changed its state.
--
-- If no slot was given out after the one that was missed, the request may go out now, and the next slot moves. So a slow
-- source that takes long to connect and keeps no connection open is not asked half as often, or never. Where the spider has
-- a delay of its own, that holds for the slots that it has used itself: it may have leased another request since.
register('renew', function(ctx, K, A)
  local source = A.source
  due_index.look_up(ctx, {source})
  local none = {text(ctx.now), '', ''}
  local rate = due_index.effective_rate(ctx, source)
  local interval = rates.interval_of(rate)
  if redis.call('EXISTS', K.pulse) == 0 or ctx.resume > ctx.now then return none end
  if not interval or due_index.held_until(ctx, source) > 0 then return none end
  if exclusions.has(ctx, source) or exclusions.has_host(ctx, A.host) then return none end
  if A.late then -- over, or perhaps: the clock was set forward since, so that others have the slots of this moment
    return ctx.now <= A.missed + A.late and {text(ctx.now), text(A.missed), string.format('%.17g', rate)} or none
  end
  if A.lease then
    local generation = grants.parts_of(A.lease)
    local leases = K.leases_of .. A.worker
    if generation ~= ctx.circuits[source].generation or redis.call('HEXISTS', leases, A.lease) == 0 then return none end
  end

  local last = ctx.slots[source]
  -- Only where the rate is still the same, or was changed by set_rates, which moves the next slot: else nobody can tell.
  -- And not where it was lowered: the one before the missed slot may have gone out a moment ago.
  local is_last = last and rate >= A.rate and math.abs(last - A.missed - interval) < 100
  local slot = is_last and ctx.now or slots.next(ctx, source)
  if slot > ctx.now + A.within then return none end
  if A.lease and A.pace > 0 then
    pace.undo(ctx, source, A.missed)
    if ctx.paces[source] > slot then return none end
    pace.set(ctx, source, slot + A.pace)
  end
  clock.keep(ctx)
  slots.give(ctx, source, slot, math.max(last or 0, slot + interval))
  return {text(ctx.now), text(slot), string.format('%.17g', rate)}
end)
