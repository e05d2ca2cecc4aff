-- Says that a worker lives, and takes from one that does not.
--
-- A: worker; join (true: register; false: only if still registered); timeout (us); max_deliveries; min_rate; circuit; pace
--    (kept for those who ask how sources stand: their own settings may be others).
-- Reply: {alive, leases held, lost worker, leases returned, dead letters}, without the last three when none is silent
--    alive: the living workers; 0 when this worker lapsed: its leases are others' by now, and it must join anew.
--
-- A worker that was itself silent until now takes nothing: Redis may have been away, and the others' turn to
-- send a heartbeat is still to come. If nobody has sent one for so long, Redis was away, or its clock was set
-- forward: all get their whole time anew.
--
-- Whoever takes a worker's leases takes it out of the workers. So one that is not among them and has leases has lost
-- nothing: somebody has deleted the key, and it goes on.
register('heartbeat', function(ctx, K, A)
  local before = tonumber(redis.call('ZSCORE', K.workers, A.worker))
  local held = redis.call('HLEN', K.leases_of .. A.worker)
  if not A.join and not before and held == 0 then return {0, 0} end
  local now = text(ctx.now)
  local latest = tonumber(redis.call('ZREVRANGEBYSCORE', K.workers, now, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2])
  redis.call('ZADD', K.workers, now, A.worker)
  redis.call('ZADD', K.spiders, now, ctx.spider)
  redis.call('HSET', K.counters, 'pace', text(A.pace))
  if before and not A.join and latest and latest < ctx.now - A.timeout / 2 then
    for _, worker in ipairs(redis.call('ZRANGE', K.workers, 0, -1)) do redis.call('ZADD', K.workers, now, worker) end
  end
  local reply = {pause.workers_alive(ctx), held}
  if not before or before < ctx.now - A.timeout / 2 then return reply end
  local silent = redis.call('ZRANGEBYSCORE', K.workers, '-inf', text(ctx.now - A.timeout), 'LIMIT', 0, 1)[1]
  if silent then
    local given_back, dead = grants.take_all(ctx, silent, true)
    statistics.note(ctx, '', 'deliveries_lost', dead + given_back)
    reply[3], reply[4], reply[5] = silent, given_back, dead
  end
  return reply
end, {'allow-oom'})
