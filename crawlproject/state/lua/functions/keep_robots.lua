-- Keeps the result of fetching a robots.txt, for all workers, and has others fetch it again.
--
-- A: url (of a robots.txt, or where one leads to); token (of the look-up that look_robots has told to fetch it); kind ('rules', 'none',
--    'refused', 'redirect' (to the URL in body), 'unreachable', or '' when nothing was requested: another may try at
--    once); body; ttl (us that it may be used); delay (s between requests that it asks for, 0: none); reason (of
--    'unreachable'); retry, retry_max (us: the first pause before another try, and the longest). source: whose look-up it
--    was; payer, and requested, see note_request.lua: the request counts, whether another has fetched it since or not.
-- Reply: 1, or 0 when another look-up fetches it by now, or has: nothing was kept.
--
-- The last good copy stays when there is no new one. The pauses between tries double.
register('keep_robots', function(ctx, K, A)
  if A.requested then
    report.count_kind(report.note_request(ctx, A.payer, unpack(A.requested)), 'txt', 1)
    report.note_robots(ctx, A.source, A.url, A.requested[2])
  end
  local copy = robots.copy_of(ctx, A.url)
  if copy.token ~= A.token then return 0 end
  copy.token, copy.locked = nil, nil
  if A.kind == 'unreachable' then
    copy.since, copy.failures, copy.reason = copy.since or ctx.now, (copy.failures or 0) + 1, A.reason
    copy.retry = ctx.now + math.min(A.retry * 2 ^ math.min(copy.failures - 1, 30), A.retry_max)
  elseif A.kind ~= '' then -- no more than needed: there are millions
    copy = {kind = A.kind, fresh = ctx.now + A.ttl, body = A.body ~= '' and A.body or nil, delay = A.delay > 0 and A.delay or nil}
  end
  robots.store(ctx, A.url, copy)
  robots.drop_oldest(ctx)
  return 1
end, {'allow-oom'})
