-- Says that a worker lives, and takes from those that do not; the latter also on behalf of a monitor, as perhaps no worker is left
-- to do it.
--
-- A: worker, join (true: register; false: only if still registered); or, of a monitor, last and since (us: what the last call has
--    replied; 0 at first); timeout (us); max_deliveries; min_rate; circuit.
-- Reply: {alive, leases held, lost worker, leases returned, dead letters}, without the last three when none is silent
--    alive is 0 when this worker lapsed: its leases are others' by now, and it must join anew. A monitor has {now, since, lost
--    worker, ...}.
--
-- A worker that was itself silent until now takes nothing: Redis may have been away, and the others' turn to
-- send a heartbeat is still to come. If nobody has sent one for so long, Redis was away, or its clock was set
-- forward: all get their whole time anew.
--
-- Whoever takes a worker's leases takes it out of the workers. So one that is not among them and has leases has lost
-- nothing: somebody has deleted the key, and it goes on.
--
-- `since` is the moment from which on a monitor has had an answer at least every half of `timeout`. Only after a whole
-- `timeout` of that does it take anything: for so long Redis was there, and its clock was not set, and a worker
-- that is silent all that time is dead. It never counts as a worker, and gives no other time anew.
register('heartbeat', function(ctx, K, A)
  if A.last then
    local since = A.since
    if A.last > ctx.now or A.last < ctx.now - A.timeout / 2 then since = ctx.now end
    local reply = {text(ctx.now), text(since)}
    if since <= ctx.now - A.timeout then grants.return_lost(ctx, reply) end
    return reply
  end
  local before = tonumber(redis.call('ZSCORE', K.workers, A.worker))
  local held = redis.call('HLEN', K.leases_of .. A.worker)
  if not A.join and not before and held == 0 then return {0, 0} end
  local reply = {1, held}
  local latest = tonumber(redis.call('ZREVRANGEBYSCORE', K.workers, text(ctx.now), '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  redis.call('ZADD', K.workers, text(ctx.now), A.worker)
  redis.call('ZADD', K.spiders, text(ctx.now), ctx.spider)
  if before and not A.join and latest and latest < ctx.now - A.timeout / 2 then
    for _, worker in ipairs(redis.call('ZRANGE', K.workers, 0, -1)) do redis.call('ZADD', K.workers, text(ctx.now), worker) end
  end
  if not before or before < ctx.now - A.timeout / 2 then return reply end

  grants.return_lost(ctx, reply)
  return reply
end, {'allow-oom'})
