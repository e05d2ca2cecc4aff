-- Elects the leader and renews its pulse.
--
-- A: worker; ttl (ms); ready (it has rates to rule by: renew the pulse); release (give the lead up).
-- Reply: {leads, fence}. The fence is the number of this term: a leader that was paused and replaced holds
--    an older one, and nothing that it writes is taken.
--
-- Keeps the clock, out of memory, too: somebody must bound the streams, and report.
register('lead', function(ctx, K, A)
  local leader, fence = unpack(redis.call('MGET', K.leader, K.fence))
  -- The end of a TTL is a moment of the server's clock, too: with one that was set back it may be hours away.
  local lasts = redis.call('PTTL', K.leader)
  if leader and leader ~= A.worker and not A.release and lasts > A.ttl then leader = false end
  if A.release then
    if leader == A.worker then redis.call('DEL', K.leader) end
    return {0, 0}
  end
  if leader and leader ~= A.worker then return {0, 0} end
  if not leader or not fence then fence = redis.call('INCR', K.fence) end
  clock.keep(ctx)
  redis.call('SET', K.leader, A.worker, 'PX', A.ttl)
  if A.ready then redis.call('SET', K.pulse, A.worker, 'PX', A.ttl) end
  return {1, tonumber(fence)}
end, {'allow-oom'})
