-- Guards slots that were given out, where Redis may no longer know of them: for the scripts that give slots or confirm
-- them, and for the leader's, which keeps the time.
-- needs: clock
--
-- A server that was started again on an append-only file without its last second, or a replica that has taken over
-- without the last writes, has forgotten slots that were given out. Nobody can tell whether it has: so nothing goes
-- out until `resume` where another server (by its run ID, a new one at each start) kept the time before.

local DOUBT_US = 1500000 -- DOUBT_S in politeness/slots.py

local resume = math.min(number(kept[3], 0) or 0, now + DOUBT_US)
local server = redis.call('INFO', 'server'):match('run_id:(%w+)') or '' -- 10 us, cold some more: not for every script
if seen > 0 and kept[4] and kept[4] ~= server then resume = now + DOUBT_US end

local function keep_time()
  ahead = math.max(now - server_time, 0)
  redis.call('HSET', K.clock, 'seen', text(now), 'ahead', text(ahead), 'resume', text(resume), 'server', server)
end
