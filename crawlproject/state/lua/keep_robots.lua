-- Keeps what came of fetching a robots.txt, for all workers.
-- needs: clock, robots_delays
--
-- A: origin; source; worker; kind ('rules', 'none', 'refused', 'unreachable', or '' when nothing was requested: another
--    may try at once); body; ttl (us that it may be used); delay (s between requests that it asks for, 0: none);
--    reason (of 'unreachable'); min_rate; circuit; retry, retry_max (us: the first pause before another try, and the longest).
-- Reply: 1 when the source is visited less often from now on, else 0.
--
-- The last good copy stays when there is no new one. The pauses between tries double.

local slower = 0
local key, lock = K.robots_of .. A.origin, K.robots_fetch_of .. A.origin
require_type('hash', key)
require_type('zset', K.robots_delays_of .. A.source)
if attempt('GET', lock) == A.worker then redis.call('DEL', lock) end
if A.kind == 'unreachable' then
  redis.call('HSETNX', key, 'since', text(now))
  local failures = (number(redis.call('HGET', key, 'failures'), 0) or 0) + 1
  redis.call('HSET', key, 'failures', text(failures))
  local wait = math.min(A.retry * 2 ^ math.min(failures - 1, 30), A.retry_max)
  redis.call('HSET', key, 'retry', text(now + wait), 'reason', A.reason)
elseif A.kind ~= '' then
  redis.call('HDEL', key, 'since', 'failures', 'retry', 'reason')
  local delay = string.format('%.17g', A.delay)
  redis.call('HSET', key, 'kind', A.kind, 'body', A.body, 'until', text(now + A.ttl), 'delay', delay,
    'asked', text(now))
  slower = set_delay(A.source, A.origin, tonumber(delay))
end
redis.call('PEXPIRE', key, 60 * 86400 * 1000)
return slower
