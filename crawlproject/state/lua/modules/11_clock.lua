-- The clock: Redis' own, which never goes back here.
--
-- Times are microseconds of this clock, the only one that decides anything shared. The server's goes back when
-- somebody sets it, or after a fail-over to a host with another. `seen` is the latest moment of the crawl's time
-- that a leader or a lease has seen. Where the server is behind, time stands still until one of them notes by how
-- much the crawl is `ahead`: slots, delays, holds and heartbeats keep their meaning, and no source gets more than
-- its rate. A clock that is set forward lets time pass quickly: each worker finds that out (state/clock.py).
-- heartbeat.lua takes care that no worker loses its leases because of it.
local clock = {}

function state.server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

function state.kept(ctx) return redis.call('HMGET', ctx.K.clock, 'seen', 'ahead', 'resume', 'server') end

function state.seen(ctx) return tonumber(ctx.kept[1] or 0) end
function state.ahead(ctx) return tonumber(ctx.kept[2] or 0) end

function state.now(ctx) return math.max(ctx.server_time + ctx.ahead, ctx.seen) end
