-- Names the workers that have sent a heartbeat lately, by the crawl's own time (see the clock), but for those that lease
-- nothing at present: others are the homes of their shards.
--
-- A: timeout (us that a worker may be silent); worker (who asks; none: no worker); rests (it leases nothing: it is paused, or
--    stops).
-- Reply: workers.
register('alive', function(ctx, K, A)
  local LONGEST_REST_US = 10000000 -- a worker that rests asks every two seconds

  local alive = redis.call('ZRANGEBYSCORE', K.workers, text(ctx.now - A.timeout), '+inf')
  redis.call('ZREMRANGEBYSCORE', K.resting, '-inf', text(ctx.now))
  if A.worker then redis.call('ZREM', K.resting, A.worker) end
  if A.worker and A.rests then redis.call('ZADD', K.resting, text(ctx.now + LONGEST_REST_US), A.worker) end
  local rests, found = {}, {}
  for _, worker in ipairs(redis.call('ZRANGE', K.resting, 0, -1)) do rests[worker] = true end
  for _, worker in ipairs(alive) do
    if not rests[worker] then found[#found + 1] = worker end
  end
  return found
end, {'allow-oom'})
