-- Elects the leader and renews its pulse.
--
-- A: worker; ttl (ms); ready (it has rates to rule by: renew the pulse); release (give the lead up).
-- Reply: {leads, fence, back}. The fence is the number of this reign: a leader that was paused and replaced holds
--    an older one, and nothing that it writes is taken. `back`: the server's clock was set back by so much (us).
--
-- Keeps the clock (see common.lua). Where time has jumped forward, or stood still without a leader, the pulse comes
-- half a second later: what had its slot before goes out first, and no source gets more than its rate.

local leader = redis.call('GET', K.leader)
-- The end of a TTL is a moment of the server's clock, too: with one that was set back it may be hours away.
local lasts = redis.call('PTTL', K.leader)
if leader and not A.release and (lasts > A.ttl or lasts == -1) then leader = false end
if A.release then
  if leader == A.worker then redis.call('DEL', K.leader) end
  return {0, 0, 0}
end
if leader and leader ~= A.worker then return {0, 0, 0} end
if not leader or redis.call('EXISTS', K.fence) == 0 then redis.call('INCR', K.fence) end
redis.call('SET', K.leader, A.worker, 'PX', A.ttl)
local pause = seen > 0 and now - seen > A.ttl * 1000 and now + 500000 or math.min(number(kept[3], 0) or 0, now + 500000)
local behind = math.max(now - server_time, 0)
redis.call('HSET', K.clock, 'seen', text(now), 'ahead', text(behind), 'hold', text(pause))
if A.ready and now >= pause then redis.call('SET', K.pulse, A.worker, 'PX', A.ttl) end
return {1, tonumber(redis.call('GET', K.fence)), math.max(behind - ahead, 0)}
