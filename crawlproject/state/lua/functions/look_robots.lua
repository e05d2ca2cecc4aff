-- Looks for an origin's robots.txt, or has the caller fetch it: one at a time, whoever comes first.
--
-- A: origin (scheme://host:port/robots.txt); source (that asks); token (of the caller's look-up, nobody else's; nil: says
--    only what holds, notes nothing and has nobody fetch anything); fetches (whether the caller can fetch now); lock (us
--    that nobody else fetches then).
-- Reply: {what, body, us that it may be used, reason, 1 when the source is visited less often from now on, else 0, url: where the
-- redirects of the robots.txt that are known lead, url that the caller fetches, or ''}. It says by keep_robots what came of it.
-- What is
--    'ignore'        the source has given permission: no robots.txt counts
--    'rules', 'none' a copy: its rules are in `body`, or there is none and everything is allowed
--    'refused'       it leads to where we do not go: nothing is fetched, `body` is the reason
--    'unreachable'   not to be had, and no copy: nothing may be fetched; tried again after that time
--    'wait'          nobody has it yet; another may be fetching it
-- The reason says why it could not be fetched: of 'unreachable', and of 'none' after 30 days of that.
--
-- A copy that has run out serves while the next one is fetched or cannot be (RFC 9309, 2.4), and after 30 days
-- without one everything is allowed (2.3.1.4). An origin may have pictures of several sources: each that looks
-- keeps to the delay that it asks for.
--
-- A redirect is a copy, too, and what it leads to is shared by all origins that lead there. What is found within five
-- redirects counts as the origin's own robots.txt; beyond, it is unavailable (2.3.1.2).
register('look_robots', function(ctx, K, A)
  local MONTH_US, MINUTE_US, OLD_US = 30 * 86400000000, 60000000, 10000000
  local MOST_REDIRECTS = 5

  -- Notes which delay (s) an origin's robots.txt asks of a source; the slot after the last one used is counted anew. A host's
  -- delay counts no more when nobody has looked at its robots.txt for ten minutes and that delay. Whoever visits the host again
  -- looks first (a worker remembers it for 90 s), and the delay counts again before the request goes out.
  -- Returns 1 when the source is visited less often than before, else 0.
  local function set_delay(source, origin, delay)
    local key, gone = K.robots_delays_of .. source, {}
    local longest = redis.call('ZRANGE', key, -10, -1, 'WITHSCORES')
    if not delay and #longest == 0 then return 0 end
    for index = 1, #longest, 2 do
      local other, asked = robots.delay_in(longest[index + 1])
      if asked < ctx.now - 11 * MINUTE_US - other * 1000000 then gone[#gone + 1] = longest[index] end
    end
    local is_slower = due_index.move_slot(ctx, source, function()
      if #gone > 0 then redis.call('ZREM', key, unpack(gone)) end
      if delay then
        redis.call('ZADD', key, robots.delay_score(ctx, delay), origin)
        redis.call('PEXPIRE', key, 2 * 86400000)
      else
        redis.call('ZREM', key, origin)
      end
      ctx.robots_delays[source] = nil
    end)
    ctx.touched[source] = true
    return is_slower and 1 or 0
  end

  -- Permission is for the hosts of those who gave it, and for those below: of a registrable domain others may have a part.
  local function is_exempt(options, host)
    for _, one in ipairs(options.robots == 'ignore' and options.hosts or {}) do
      local is_below = one:find('.', 1, true) and host:sub(-#one - 1) == '.' .. one
      if host == one or is_below then return true end
    end
    return false
  end

  local _, _, options = rates.parts_of_row(redis.call('HGET', K.catalogue, A.source))
  if options and options ~= '' and is_exempt(cjson.decode(options), naming.host_in(A.origin)) then
    if A.token then set_delay(A.source, A.origin, nil) end
    return {'ignore', '', MINUTE_US, '', 0, A.origin, ''}
  end

  local url, copy, fresh, redirects = A.origin, robots.copy_of(ctx, A.origin), math.huge, 0
  local wanted, to_fetch = '', nil
  while true do
    local is_due = (copy.fresh or 0) <= ctx.now and (copy.retry or 0) <= ctx.now
    local is_free = (copy.locked or 0) <= ctx.now or copy.token == A.token -- the reply that said so was lost
    if is_due and is_free and not to_fetch then wanted, to_fetch = url, copy end
    fresh = math.min(fresh, copy.fresh or 0)
    if copy.kind ~= 'redirect' then break end
    redirects = redirects + 1
    if redirects > MOST_REDIRECTS then
      copy = {kind = 'none'}
      break
    end
    url = copy.body
    copy = robots.copy_of(ctx, url)
  end

  local slower = copy.kind and A.token and set_delay(A.source, A.origin, copy.delay) or 0
  if to_fetch and A.token and A.fetches then
    to_fetch.token, to_fetch.locked = A.token, ctx.now + A.lock
    robots.store(ctx, wanted, to_fetch)
  else
    wanted = ''
  end
  local function reply(what, body, time, reason) return {what, body, math.max(time, 0), reason, slower, url, wanted} end

  if copy.kind then return reply(copy.kind, copy.body or '', math.max(fresh - ctx.now, A.token and OLD_US or 0), '') end
  local retry = copy.retry or 0
  if retry > ctx.now or (copy.since and not A.token) then
    local is_long = copy.since < ctx.now - MONTH_US
    return reply(is_long and 'none' or 'unreachable', '', retry - ctx.now, copy.reason)
  end
  return reply('wait', '', 0, '')
end, {'allow-oom'})
