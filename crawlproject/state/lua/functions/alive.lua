-- Names the workers that have sent a heartbeat lately, by the crawl's own time (see the clock).
--
-- A: timeout (us that a worker may be silent).
-- Reply: workers.
register('alive', function(ctx, K, A)
  return redis.call('ZRANGEBYSCORE', K.workers, text(ctx.now - A.timeout), '+inf')
end, {'no-writes'})
