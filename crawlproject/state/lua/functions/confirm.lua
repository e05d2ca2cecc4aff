-- Tells whether a slot that was reserved further ahead than leases are may still be used.
--
-- A: source; host (of the request); slot (us); late (us that it may be used late); min_rate; circuit.
-- Reply: 1, or 0 when there is no pulse, or the source is halted, held or at rate 0 by now, or excluded, or the host is, or
-- when the slot is over or may be: the clock was set forward since, so that others have the slots of this moment (see
-- the clock).
register('confirm', function(ctx, K, A)
  local source = A.source
  due_index.look_up(ctx, {source})
  local is_stopped = redis.call('EXISTS', K.pulse) == 0 or ctx.resume > ctx.now
    or due_index.held_until(ctx, source) > 0 or due_index.effective_rate(ctx, source) <= 0
    or exclusions.has(ctx, source) or exclusions.has_host(ctx, A.host)
  return (is_stopped or ctx.now > A.slot + A.late) and 0 or 1
end, {'no-writes'})
