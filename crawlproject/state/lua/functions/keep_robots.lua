-- Keeps the result of fetching a robots.txt, for all workers, and ends the lock on fetching it. With the kind 'held' it renews the
-- lock of a worker that still fetches.
--
-- A: url (of a robots.txt, or where one leads to); token (that look_robots has locked it with); kind ('rules', 'short', 'none',
--    'refused', 'redirect' (to the URL in body), 'unreachable', '' when nothing was requested: another may try at
--    once; or 'held', and the lock lasts for `lock` us from now); body; ttl (us that it may be used); delay (s between requests that it asks for, 0: none); reason (of
--    'unreachable'); retry, retry_max (us: the first pause before another try, and the longest); maxsize (bytes that all
--    copies may take). source: whose look-up it was; payer, sent (us), result, received (bytes), sent_rate (1/1000 rps) of
--    the request: it is counted, whether the lock was lost or not (see the report).
-- Reply: 1, or 0 when the lock was lost: another may have fetched it since, so nothing was kept.
--
-- The last good copy stays when there is no new one. The pauses between tries double. A copy that nobody needs is
-- kept for two days after it has run out; how long a robots.txt has been unreachable is known for 60 days.
register('keep_robots', function(ctx, K, A)
  local DAY_MS = 86400000
  local key, lock = K.robots_of .. A.url, K.robots_fetch_of .. A.url
  if A.sent then
    report.count_kind(report.note_request(ctx, A.payer, A.sent, A.result, A.received, A.sent_rate).values, 'txt', 1)
    report.save(ctx)
    report.note_robots(ctx, A.source, A.url, A.result)
  end
  if redis.call('GET', lock) ~= A.token then return 0 end
  if A.kind == 'held' then
    redis.call('PEXPIRE', lock, text(A.lock / 1000))
    return 1
  elseif A.kind == 'unreachable' then
    redis.call('HSETNX', key, 'since', text(ctx.now))
    local failures = (tonumber(redis.call('HGET', key, 'failures')) or 0) + 1
    redis.call('HSET', key, 'failures', text(failures))
    local wait = math.min(A.retry * 2 ^ math.min(failures - 1, 30), A.retry_max)
    redis.call('HSET', key, 'retry', text(ctx.now + wait), 'reason', A.reason)
    redis.call('PEXPIRE', key, text(60 * DAY_MS))
  elseif A.kind ~= '' then
    redis.call('HDEL', key, 'since', 'failures', 'retry', 'reason', 'body', 'delay', 'asked')
    local fields = {'kind', A.kind, 'until', text(ctx.now + A.ttl)} -- no more than needed: there are millions
    if A.body ~= '' then fields[#fields + 1], fields[#fields + 2] = 'body', A.body end
    redis.call('HSET', key, unpack(fields))
    if A.delay > 0 then redis.call('HSET', key, 'delay', string.format('%.17g', A.delay), 'asked', text(ctx.now)) end
    redis.call('PEXPIRE', key, text(A.ttl / 1000 + 2 * DAY_MS))
    robots.note_size(ctx, A.url, #A.body)
    robots.drop_oldest(ctx, A.maxsize)
  end
  redis.call('DEL', lock)
  return 1
end, {'allow-oom'})
