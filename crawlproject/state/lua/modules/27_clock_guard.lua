-- Guards slots that were given out, where Redis may no longer know of them: for the scripts that give slots or confirm
-- them, and for the leader's, which keeps the time.
--
-- A server that was started again on an append-only file without its last second, or a replica that has taken over
-- without the last writes, has forgotten slots that were given out. Nobody can tell whether it has: so nothing goes
-- out until `resume` where another server (by its run ID, a new one at each start) kept the time before.
local clock_guard = {}

local DOUBT_US = 1500000 -- DOUBT_S in politeness/slots.py

function state.resume(ctx)
  if ctx.seen > 0 and ctx.kept[4] and ctx.kept[4] ~= ctx.server then return ctx.now + DOUBT_US end
  return tonumber(ctx.kept[3] or 0)
end

-- 10 us, cold some more: not for every call
function state.server() return redis.call('INFO', 'server'):match('run_id:(%w+)') end

function clock_guard.keep_time(ctx)
  ctx.ahead = math.max(ctx.now - ctx.server_time, 0)
  redis.call('HSET', ctx.K.clock, 'seen', text(ctx.now), 'ahead', text(ctx.ahead), 'resume', text(ctx.resume), 'server', ctx.server)
end
