-- Keeps a sample of the counters for the next one, whoever takes it.
--
-- A: worker; at (us, when it was taken); counters; ttl (s).
-- Reply: 1, or 0 when another leads by now, or has taken one since: then that one tells.
register('keep_sample', function(ctx, K, A)
  if redis.call('GET', K.leader) ~= A.worker then return 0 end
  local at = tonumber(redis.call('HGET', K.sample, 'at'))
  if at and at >= A.at and at <= ctx.now then return 0 end
  redis.call('HSET', K.sample, 'at', text(A.at), 'counters', A.counters)
  redis.call('EXPIRE', K.sample, A.ttl)
  return 1
end, {'allow-oom'}) -- there is something to tell when Redis is out of memory
