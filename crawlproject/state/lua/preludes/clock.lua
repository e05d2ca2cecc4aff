-- The clock: Redis' own, which never goes back here.
-- needs: numbers
-- reads: clock
--
-- Times are microseconds of this clock, the only one that decides anything shared. The server's goes back when
-- somebody sets it, or after a fail-over to a host with another. `seen` is the latest moment of the crawl's time
-- that a leader or a lease has seen. Where the server is behind, time stands still until one of them notes by how
-- much the crawl is `ahead`: slots, delays, holds and heartbeats keep their meaning, and no source gets more than
-- its rate. A clock that is set forward lets time pass quickly. As that cannot be told from a time without a
-- leader, after either nothing goes out until `resume`: what had its slot before goes first. heartbeat.lua takes
-- care that no worker loses its leases because of it.
--
-- A server that was started again on an append-only file without its last second, or a replica that has taken over
-- without the last writes, has forgotten slots that were given out. Nobody can tell whether it has: so nothing goes
-- out until `resume` either where another server (by its run ID, a new one at each start) kept the time before.

local CENTURY = 3e15
local LONGEST_SILENCE_US = 3000000 -- leaders look each second
local MOST_SLOTS_AHEAD_US = 500000 -- slots are given out 250 ms ahead, and may be used 250 ms late

local server_time = redis.call('TIME')
server_time = server_time[1] * 1000000 + server_time[2]
local kept = read('hash', 'HMGET', K.clock, 'seen', 'ahead', 'resume', 'server')
local seen, ahead = number(kept[1], 0) or 0, number(kept[2], 0) or 0
if seen > server_time + CENTURY then seen = 0 end
if ahead > CENTURY then ahead = 0 end
local now = math.max(server_time + ahead, seen)
local resume = math.min(number(kept[3], 0) or 0, now + MOST_SLOTS_AHEAD_US)
local server = redis.call('INFO', 'server'):match('run_id:(%w+)') or ''
local is_another = kept[4] and kept[4] ~= server
if seen > 0 and (is_another or now - seen > LONGEST_SILENCE_US) then resume = now + MOST_SLOTS_AHEAD_US end

local function keep_time()
  ahead = math.max(now - server_time, 0)
  redis.call('HSET', K.clock, 'seen', text(now), 'ahead', text(ahead), 'resume', text(resume), 'server', server)
end

-- When a script ran, for the clocks of the workers; they begin anew where `ahead` has changed.
local function moment() return text(now) .. ' ' .. text(ahead) end
