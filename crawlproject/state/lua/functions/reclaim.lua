-- Returns the leases of silent workers on behalf of a monitor, as perhaps no worker is left to do it.
--
-- A: last, since (us: what the last call has replied; 0 at first); timeout (us that a worker may be silent);
--    max_deliveries; min_rate; circuit.
-- Reply: {now, since, lost worker, leases returned, dead letters}, without the last three when none is silent
--
-- `since` is the moment from which on the caller has had an answer at least every half of `timeout`. Only after a whole
-- `timeout` of that does it take anything: for so long Redis was there, and its clock was not set, and a worker
-- that is silent all that time is dead. It never counts as a worker, and gives no other time anew.
register('reclaim', function(ctx, K, A)
  local since = A.since
  if A.last > ctx.now or A.last < ctx.now - A.timeout / 2 then since = ctx.now end
  local reply = {text(ctx.now), text(since)}
  if since <= ctx.now - A.timeout then grants.return_lost(ctx, reply) end
  return reply
end, {'allow-oom'})
