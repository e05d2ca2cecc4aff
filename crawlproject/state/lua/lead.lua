-- Elects the leader and renews its pulse.
--
-- A: worker; ttl (ms); ready (it has rates to rule by: renew the pulse); release (give the lead up).
-- Reply: {leads, fence}. The fence is the number of this reign: a leader that was paused and replaced holds
--    an older one, and nothing that it writes is taken.
--
-- Keeps the clock (see common.lua). Begins with a write that frees: out of memory, too, somebody must bound the streams,
-- and tell.

local leader = redis.call('GET', K.leader)
-- The end of a TTL is a moment of the server's clock, too: with one that was set back it may be hours away.
local lasts = redis.call('PTTL', K.leader)
if leader and leader ~= A.worker and not A.release and (lasts > A.ttl or lasts == -1) then leader = false end
if A.release then
  if leader == A.worker then redis.call('DEL', K.leader) end
  return {0, 0}
end
if leader and leader ~= A.worker then return {0, 0} end
redis.call('DEL', K.leader)
if not leader or redis.call('EXISTS', K.fence) == 0 then redis.call('INCR', K.fence) end
keep_time()
redis.call('SET', K.leader, A.worker, 'PX', A.ttl)
if A.ready then redis.call('SET', K.pulse, A.worker, 'PX', A.ttl) end
return {1, tonumber(redis.call('GET', K.fence))}
