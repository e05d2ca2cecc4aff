-- Keeps what the monitor has read, for the next reading, whoever makes it.
-- needs: clock
-- types: hash reading, string leader
--
-- A: worker; at (us, when it was read); counters; ttl (s).
-- Reply: 1, or 0 when another leads by now, or has read since: then that one tells.

if redis.call('GET', K.leader) ~= A.worker then return 0 end
local at = number(redis.call('HGET', K.reading, 'at'), 0)
if at and at >= A.at and at <= now then return 0 end
redis.call('DEL', K.reading) -- frees: there is something to tell when Redis is out of memory
redis.call('HSET', K.reading, 'at', text(A.at), 'counters', A.counters)
redis.call('EXPIRE', K.reading, A.ttl)
return 1
