-- Looks for an origin's robots.txt, or has the caller fetch it: one at a time, whoever comes first.
--
-- A: origin (scheme://host:port/robots.txt); source (that asks); token (of the caller's look-up, nobody else's; nil: says
--    only what holds, notes nothing and has nobody fetch anything); fetches (whether the caller can fetch now); lock (us
--    that a lock lasts unless it is `held`, see keep_robots.lua); min_rate; circuit.
-- Reply: {what, body, seconds that it may be used, reason, 1 when the source is visited less often from now on,
-- else 0, url: where the redirects of the robots.txt that are known lead}; what is
--    'ignore'        the source has given permission: no robots.txt counts
--    'rules', 'short', 'none' a copy: its rules are in `body`, see robots_texts.py, or there is none and everything is allowed
--    'refused'       it leads to where we do not go: nothing is fetched, `body` is the reason
--    'unreachable'   not to be had, and no copy: nothing may be fetched; tried again after those seconds
--    'fetch'         the caller fetches `url`, and says by keep_robots what came of it; the seconds are not 0 if there is
--                    a copy that serves meanwhile
--    'wait'          nobody has it yet; another may be fetching it
-- The reason says why it could not be fetched: of 'unreachable', and of 'none' after 30 days of that.
--
-- A copy that has run out serves while the next one is fetched or cannot be (RFC 9309, 2.4), and after 30 days
-- without one everything is allowed (2.3.1.4). An origin may have pictures of several sources: each that looks
-- keeps to the delay that it asks for, as long as it is `asked`.
--
-- A redirect is a copy, too, and what it leads to is shared by all origins that lead there. What is found within five
-- redirects counts as the origin's own robots.txt; beyond, it is unavailable (2.3.1.2).
register('look_robots', function(ctx, K, A)
  local MONTH_US = 30 * 86400 * 1000000
  local MOST_REDIRECTS = 5
  local UNASKED_US = 600000000
  local NAMES = {'kind', 'body', 'until', 'retry', 'since', 'reason', 'delay'}

  -- A host's delay counts no more when nobody has looked at its robots.txt for ten minutes and that delay. Whoever visits the
  -- host again looks first (a worker remembers it for 90 s), and the delay counts again before the request goes out.
  local function unasked(source)
    local found = {}
    local longest = redis.call('ZRANGE', K.robots_delays_of .. source, -10, -1, 'WITHSCORES')
    for index = 1, #longest, 2 do
      local asked = redis.call('HGET', K.robots_of .. longest[index], 'asked')
      local delay = robots.bounded_delay(longest[index + 1]) * 1000000
      if (tonumber(asked) or 0) < ctx.now - UNASKED_US - delay then found[#found + 1] = longest[index] end
    end
    return found
  end

  local KEPT_MS = 2 * 86400 * 1000

  -- Notes which delay (s) an origin's robots.txt asks of a source; the slot after the last one used is counted anew.
  -- Returns 1 when the source is visited less often than before, else 0.
  local function set_delay(source, origin, delay)
    local key = K.robots_delays_of .. source
    local others = unasked(source)
    if (tonumber(redis.call('ZSCORE', key, origin)) or 0) == delay and #others == 0 then
      redis.call('PEXPIRE', key, KEPT_MS)
      return 0
    end
    local is_slower = due_index.move_slot(ctx, source, function()
      redis.call('ZREM', key, origin, unpack(others))
      if delay > 0 then redis.call('ZADD', key, string.format('%.17g', delay), origin) end
      redis.call('PEXPIRE', key, KEPT_MS)
      ctx.robots_delays[source] = nil
    end)
    due_index.schedule(ctx, source)
    due_index.save(ctx)
    return is_slower and 1 or 0
  end

  -- Permission is for the hosts of those who gave it, and for those below: of a registrable domain others may have a part.
  local function is_exempt(options, host)
    if options.robots ~= 'ignore' then return false end
    local hosts = {}
    for _, one in ipairs(options.hosts or {}) do hosts[one] = true end
    local above = host
    repeat
      if hosts[above] then return true end
      above = above:match('^[^.]*%.(.+)$')
    until not above or not above:find('.', 1, true)
    return false
  end

  local _, _, options = rates.parts_of_row(redis.call('HGET', K.catalogue, A.source))
  if options and options ~= '' and is_exempt(cjson.decode(options), naming.host_in(A.origin)) then
    if A.token then set_delay(A.source, A.origin, 0) end
    return {'ignore', '', '60', '', 0, A.origin}
  end

  local function copy_of(url)
    local copy = {}
    for index, value in ipairs(redis.call('HMGET', K.robots_of .. url, unpack(NAMES))) do
      copy[NAMES[index]] = value or nil
    end
    copy.fresh, copy.retry = tonumber(copy['until']) or 0, tonumber(copy.retry) or 0
    copy.body, copy.reason = copy.body or '', copy.reason or ''
    return copy
  end

  local url, fresh, missing = A.origin, ctx.now + MONTH_US, {} -- `missing`: what is to be fetched, of all along the way
  local copy, redirects = copy_of(url), 0
  while true do
    local has_run_out = not copy.kind or copy.fresh <= ctx.now
    if has_run_out and copy.retry <= ctx.now then missing[#missing + 1] = url end
    fresh = math.min(fresh, copy.fresh)
    if copy.kind ~= 'redirect' then break end
    redirects = redirects + 1
    if redirects > MOST_REDIRECTS then
      copy = {kind = 'none', body = '', reason = '', retry = 0}
      break
    end
    url = copy.body
    copy = copy_of(url)
  end

  local function seconds(moment) return string.format('%.3f', math.max(moment - ctx.now, 0) / 1000000) end

  local function lock(wanted)
    local key = K.robots_fetch_of .. wanted
    if redis.call('PTTL', key) > A.lock / 1000 then redis.call('DEL', key) end -- the clock was set back
    if redis.call('GET', key) == A.token then return true end -- the reply that said so was lost
    return redis.call('SET', key, A.token, 'NX', 'PX', text(A.lock / 1000))
  end

  local slower = 0
  if copy.kind and A.token then
    local delay = robots.bounded_delay(copy.delay)
    slower = set_delay(A.source, A.origin, delay)
    if delay > 0 then redis.call('HSET', K.robots_of .. A.origin, 'asked', text(ctx.now)) end
  end
  if A.token and A.fetches then
    for _, wanted in ipairs(missing) do
      if lock(wanted) then return {'fetch', '', copy.kind and '10' or '0', '', slower, wanted} end
    end
  end
  if copy.kind then
    local lasts = fresh > ctx.now and seconds(fresh) or A.token and '10' or '0'
    return {copy.kind, copy.body, lasts, '', slower, url}
  end
  local since = tonumber(copy.since)
  if copy.retry > ctx.now or (since and not A.token) then
    local what = (since or ctx.now) < ctx.now - MONTH_US and 'none' or 'unreachable'
    return {what, '', seconds(copy.retry), copy.reason, slower, url}
  end
  return {'wait', '', '0', '', slower, url}
end, {'allow-oom'})
