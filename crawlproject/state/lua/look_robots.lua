-- Looks for an origin's robots.txt, or has the caller fetch it: one worker at a time, whoever comes first.
-- needs: clock, circuit, robots_delays
--
-- A: origin (scheme://host:port/robots.txt); source (that pays); worker, or nil: says only what holds, notes nothing
--    and has nobody fetch anything; min_rate; circuit.
-- Reply: {what, body, seconds that it may be used, reason, 1 when the source is visited less often from now on,
-- else 0}; what is
--    'ignore'        the source has given permission: no robots.txt counts
--    'rules', 'none' a copy: its rules are in `body`, or there is none and everything is allowed
--    'refused'       it leads to where we do not go: nothing is fetched, `body` is the reason
--    'unreachable'   not to be had, and no copy: nothing may be fetched; tried again after those seconds
--    'fetch'         the caller fetches it, and says by keep_robots what came of it
--    'wait'          another worker fetches it; without a worker: nobody has fetched it yet
-- The reason says why an origin could not be fetched: of 'unreachable', and of 'none' after 30 days of that.
--
-- A copy that has run out serves while the next one is fetched or cannot be (RFC 9309, 2.4), and after 30 days
-- without one everything is allowed (2.3.1.4). An origin may have pictures of several sources: each that looks
-- keeps to the delay that it asks for, as long as it is `asked` (see robots_delays.lua).

local MONTH = 30 * 86400 * 1000000

require_type('hash', K.robots_of .. A.origin)
require_type('zset', K.robots_delays_of .. A.source)
if options_of(A.source).robots == 'ignore' then
  if A.worker then set_delay(A.source, A.origin, 0) end
  return {'ignore', '', '60', '', 0}
end

local names = {'kind', 'body', 'until', 'retry', 'since', 'reason', 'delay'}
local copy = {}
for index, value in ipairs(redis.call('HMGET', K.robots_of .. A.origin, unpack(names))) do
  copy[names[index]] = value or nil
end
if copy.kind ~= 'rules' and copy.kind ~= 'none' and copy.kind ~= 'refused' then copy.kind = nil end

local function seconds(moment) return string.format('%.3f', math.max(moment - now, 0) / 1000000) end

local slower = 0
if copy.kind and A.worker then
  slower = set_delay(A.source, A.origin, math.min(number(copy.delay, 0) or 0, 86400))
  redis.call('HSET', K.robots_of .. A.origin, 'asked', text(now))
end
local fresh, retry = number(copy['until'], 0) or 0, number(copy.retry, 0) or 0
copy.body, copy.reason = copy.body or '', copy.reason or ''
if fresh > now + MONTH or retry > now + MONTH then fresh, retry = 0, 0 end -- we promise no copy for so long
if copy.kind and fresh > now then return {copy.kind, copy.body, seconds(fresh), '', slower} end
if A.worker and retry <= now then
  local lock = K.robots_fetch_of .. A.origin
  if redis.call('PTTL', lock) == -1 then redis.call('DEL', lock) end
  if redis.call('SET', lock, A.worker, 'NX', 'PX', 60000) then return {'fetch', '', '0', '', slower} end
end
if copy.kind then return {copy.kind, copy.body, A.worker and '10' or '0', '', slower} end
local since = number(copy.since, 0)
if retry > now or (since and not A.worker) then
  local what = (since or now) < now - MONTH and 'none' or 'unreachable'
  return {what, '', seconds(retry), copy.reason, slower}
end
return {'wait', '', '0', '', slower}
