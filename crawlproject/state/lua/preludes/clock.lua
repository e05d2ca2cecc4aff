-- The clock: Redis' own, which never goes back here.
-- needs: numbers
-- reads: clock
--
-- Times are microseconds of this clock, the only one that decides anything shared. The server's goes back when
-- somebody sets it, or after a fail-over to a host with another. `seen` is the latest moment of the crawl's time
-- that a leader or a lease has seen. Where the server is behind, time stands still until one of them notes by how
-- much the crawl is `ahead`: slots, delays, holds and heartbeats keep their meaning, and no source gets more than
-- its rate. A clock that is set forward lets time pass quickly: each worker finds that out (state/clock.py).
-- heartbeat.lua takes care that no worker loses its leases because of it.

local CENTURY = 3e15

local server_time = redis.call('TIME')
server_time = server_time[1] * 1000000 + server_time[2]
local kept = read('hash', 'HMGET', K.clock, 'seen', 'ahead', 'resume', 'server')
local seen, ahead = number(kept[1], 0) or 0, number(kept[2], 0) or 0
if seen > server_time + CENTURY then seen = 0 end
if ahead > CENTURY then ahead = 0 end
local now = math.max(server_time + ahead, seen)
