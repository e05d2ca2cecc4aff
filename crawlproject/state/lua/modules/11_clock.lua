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

-- A server that was started again on an append-only file without its last second, or a replica that has taken over
-- without the last writes, has forgotten slots that were given out. Nobody can tell whether it has: so nothing goes
-- out until `resume` where another server (by its run ID, a new one at each start) kept the time before.
local DOUBT_US = 1750000 -- DOUBT_S in politeness/slots.py

-- The server's moment in this time.
function state.wall(ctx) return ctx.now - ctx.ahead end

function state.resume(ctx)
  if ctx.seen > 0 and ctx.kept[4] and ctx.kept[4] ~= ctx.server then return ctx.now + DOUBT_US end
  return tonumber(ctx.kept[3] or 0)
end

-- A constant: another server, or this one started anew, loads the library anew.
local run_id

function state.server()
  run_id = run_id or redis.call('INFO', 'server'):match('run_id:(%w+)') or '' -- some providers hide it
  return run_id
end

function clock.keep(ctx)
  ctx.ahead = math.max(ctx.now - ctx.server_time, 0)
  redis.call('HSET', ctx.K.clock, 'seen', text(ctx.now), 'ahead', text(ctx.ahead), 'resume', text(ctx.resume),
    'server', ctx.server)
end
