-- Guards slots that were given out, where Redis may no longer know of them: for the scripts that give slots or confirm
-- them, and for the leader's, which keeps the time.
-- needs: clock
--
-- A clock that is set forward cannot be told from a time without a leader: after either nothing goes out until `resume`,
-- and what had its slot before goes first.
--
-- A server that was started again on an append-only file without its last second, or a replica that has taken over
-- without the last writes, has forgotten slots that were given out. Nobody can tell whether it has: so nothing goes
-- out until `resume` either where another server (by its run ID, a new one at each start) kept the time before.

local LONGEST_SILENCE_US = 3000000 -- leaders look each second
local MOST_SLOTS_AHEAD_US = 500000 -- slots are given out 250 ms ahead, and may be used 250 ms late

local resume = math.min(number(kept[3], 0) or 0, now + MOST_SLOTS_AHEAD_US)
local server = redis.call('INFO', 'server'):match('run_id:(%w+)') or '' -- 10 us, cold some more: not for every script
local is_another = kept[4] and kept[4] ~= server
if seen > 0 and (is_another or now - seen > LONGEST_SILENCE_US) then resume = now + MOST_SLOTS_AHEAD_US end

local function keep_time()
  ahead = math.max(now - server_time, 0)
  redis.call('HSET', K.clock, 'seen', text(now), 'ahead', text(ahead), 'resume', text(resume), 'server', server)
end
