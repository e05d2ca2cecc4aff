-- What is seen of each source: in the last minutes, and by the hour.

-- Windows: what is known of the last minutes of a source. Each is one map (msgpack):
--    {results (successes and errors in each slice of its circuit's window), slice (the newest of them), lasts (ms for which its
--    circuit needs them); turn (five minutes), and of that hosts (-> {fine, errors}; '': all but the first eight) and fetches (how
--    many took as long as each bucket says); heard, usual, recent, moved (how fast answers come, see samples); seconds (how
--    many requests it got in each of the last ones), newest (of them)}
-- Results, fetches and seconds are texts of counters of two bytes, the newest slice or second first: unpacking a list takes long.
--
local windows = {}

-- source -> true: its window is to be written
function state.changed_windows() return {} end

local TURN_US = 300000000
local KEPT_MS = 600000
local MOST_HOSTS = 8

-- Has the newest of such counters come `by` bytes further; there are no more than `most` bytes.
function windows.shifted(counters, by, most)
  by = math.min(by, most)
  return ('\0'):rep(by) .. counters:sub(1, most - by)
end

-- Adds to the counter at a place, the first of which is 0; returns them, and what it is now.
function windows.count_in(counters, place, many)
  local at = 2 * place
  if #counters < at + 2 then counters = counters .. ('\0'):rep(at + 2 - #counters) end
  local high, low = counters:byte(at + 1, at + 2)
  many = math.min(high * 256 + low + many, 65535)
  return counters:sub(1, at) .. string.char(math.floor(many / 256), many % 256) .. counters:sub(at + 3), many
end

function windows.unpacked(ctx, packed)
  local turn = math.floor(ctx.now / TURN_US)
  local window = packed and cmsgpack.unpack(packed)
    or {results = '', slice = 0, lasts = 0, hosts = {}, fetches = '', turn = turn, heard = 0, usual = 0, recent = 0, moved = 0,
      newest = 0, seconds = ''}
  if window.turn < turn then window.turn, window.hosts, window.fetches = turn, {}, '' end
  return window
end

reads('windows', function(ctx, sources)
  local found = strings(ctx.K.window_of, sources)
  for index, packed in ipairs(found) do found[index] = windows.unpacked(ctx, packed) end
  return found
end)

function windows.change(ctx, source)
  ctx.changed_windows[source] = true
  return ctx.windows[source]
end

-- Forgets all but how many requests a source got in the last seconds.
function windows.clear(ctx, source)
  local before, window = windows.change(ctx, source), windows.unpacked(ctx, false)
  window.newest, window.seconds = before.newest, before.seconds
  ctx.windows[source], ctx.tallies[source] = window, nil
end

-- A result came from this host.
function windows.note_host(ctx, source, host, fine)
  local hosts = windows.change(ctx, source).hosts
  if not hosts[host] then
    local count = 0
    for _ in pairs(hosts) do count = count + 1 end
    if count >= MOST_HOSTS then host = '' end
    hosts[host] = hosts[host] or {0, 0}
  end
  local results, place = hosts[host], fine and 1 or 2
  results[place] = results[place] + 1
end

-- The only one of several hosts that has errors; nil where there is no such.
function windows.failing_host(hosts)
  local failing, others_answer
  for host, results in pairs(hosts) do
    if results[2] > 0 then
      if failing or host == '' then return nil end
      failing = host
    elseif results[1] > 0 then
      others_answer = true
    end
  end
  return others_answer and failing or nil
end

-- The report: what was requested of each source, by hours, and what its trouble has led to: what `scrapy report` tells.
--
-- An hour in which something happened is a field of a hash that holds four days of a source:
--    {requests, bytes of bodies received, the first and the last of them (ms of the hour), the most in one second, which
--    second that was (of the hour), the highest rate in force (1/1000 rps), kind, how many, kind, ...}
--    Two versions write to it side by side.
-- Kinds are what the requests ended in (a status, `timeout`, ...); `-` and what kept one from being sent; `txt`: so many of
-- them were for a robots.txt; `robots`, `opt_out`: what the site forbids, and was not requested or not kept; `slowed`,
-- `held`, `opened`, `halted`; `lost`: leases of workers that died, which may have sent their requests.
--
-- The hours are those of the server's clock, and so are the seconds, as in the access log of a site. A request is counted
-- when its lease ends, so once, and stands where it was sent. How many a source got in each of the last seconds is known
-- for as long as a fetch may take (DOWNLOAD_TIMEOUT).
--
local report = {}

local BLOCK_HOURS = 96 -- crawlproject/contrib/report/requests.py reads these hashes, too
local HOUR_US = 3600000000
local KEPT_S = 7776000 -- 90 days
local KEPT_SECONDS = 64
local FIRST_KIND = 8
local MOST_KINDS = 24 -- in an hour: beyond, statuses count by their class
local MOST_INCIDENTS = 24
local MOST_ROBOTS = 16 -- URLs
local LONGEST_ROBOTS_URL = 200

function state.hours() return {} end -- hour -> source -> what this call has counted, and adds to that at its end

function report.hour_of(ctx, source, wall)
  local at = math.floor(wall / HOUR_US)
  local sources = ctx.hours[at] or {}
  ctx.hours[at] = sources
  local hour = sources[source]
  if not hour then
    hour = {requests = 0, bytes = 0, first = HOUR_US / 1000, last = 0, rate = 0, kinds = {}, seconds = {}}
    sources[source] = hour
  end
  return hour
end

function report.count_kind(hour, kind, many) hour.kinds[kind] = (hour.kinds[kind] or 0) + many end

-- A request of `source` was sent at `at` (us), at a rate of `rate` (1/1000 rps), and has ended in `kind`, with a body of
-- so many bytes.
function report.note_request(ctx, source, at, kind, bytes, rate)
  if at > ctx.now or at < ctx.now - HOUR_US then at = ctx.now end
  local wall = at - ctx.ahead
  local hour, second, moment = report.hour_of(ctx, source, wall), math.floor(wall / 1000000), math.floor(wall % HOUR_US / 1000)
  hour.requests, hour.bytes = hour.requests + 1, hour.bytes + bytes
  hour.first, hour.last, hour.rate = math.min(hour.first, moment), math.max(hour.last, moment), math.max(hour.rate, rate)
  hour.seconds[second] = (hour.seconds[second] or 0) + 1
  report.count_kind(hour, kind, 1)
  return hour
end

-- Something else has happened to a source, so often.
function report.note_kind(ctx, source, kind, many) report.count_kind(report.hour_of(ctx, source, ctx.wall), kind, many) end

-- Adds requests to their second; returns how many there are in that by now. Of one that is too old nothing else is known.
function report.count_in_second(ctx, source, second, many)
  local window = windows.change(ctx, source)
  if second > window.newest then
    window.seconds = windows.shifted(window.seconds, 2 * (second - window.newest), 2 * KEPT_SECONDS)
    window.newest = second
  end
  local place = window.newest - second
  if place < KEPT_SECONDS then window.seconds, many = windows.count_in(window.seconds, place, many) end
  return many
end

-- Adds what was counted of a kind to the values of an hour.
function report.add_kind(values, kind, many)
  for place = FIRST_KIND, #values, 2 do
    if values[place] == kind then
      values[place + 1] = values[place + 1] + many
      return
    end
  end
  if #values >= FIRST_KIND + 2 * MOST_KINDS and kind:find('^%d%d%d') then
    report.add_kind(values, kind:sub(1, 1) .. 'xx', many)
  else
    values[#values + 1], values[#values + 2] = kind, many
  end
end

function report.save_hour(ctx, at, source, hour)
  local block, field = math.floor(at / BLOCK_HOURS), text(at % BLOCK_HOURS)
  local key = ctx.K.requests_of .. text(block) .. ':' .. source
  local packed = redis.call('HGET', key, field)
  local values = packed and cmsgpack.unpack(packed) or {0, 0, HOUR_US / 1000, 0, 0, 0, 0}
  values[1], values[2] = values[1] + hour.requests, values[2] + hour.bytes
  values[3], values[4] = math.min(values[3], hour.first), math.max(values[4], hour.last)
  values[7] = math.max(values[7], hour.rate)
  for second, many in pairs(hour.seconds) do
    many = report.count_in_second(ctx, source, second, many)
    if many > values[5] then values[5], values[6] = many, second % 3600 end
  end
  for kind, many in pairs(hour.kinds) do report.add_kind(values, kind, many) end
  redis.call('HSET', key, field, cmsgpack.pack(values))
  if not packed then redis.call('EXPIREAT', key, text((block + 1) * BLOCK_HOURS * 3600 + KEPT_S)) end
end

at_end('hours', function(ctx)
  for at, sources in pairs(ctx.hours) do
    for source, hour in pairs(sources) do report.save_hour(ctx, at, source, hour) end
  end
end)

at_end('changed_windows', function(ctx)
  for source in pairs(ctx.changed_windows) do
    local window, tally = ctx.windows[source], ctx.tallies[source]
    if tally then
      if tally.fine > 0 then window.results = windows.count_in(window.results, 0, tally.fine) end
      if tally.failed > 0 then window.results = windows.count_in(window.results, 1, tally.failed) end
      for bucket, many in pairs(tally.fetches) do window.fetches = windows.count_in(window.fetches, bucket, many) end
    end
    redis.call('SET', ctx.K.window_of .. source, cmsgpack.pack(window), 'PX', text(math.max(window.lasts, KEPT_MS)))
  end
end)

-- A robots.txt, or where one leads to, was fetched for a source: a field of the same hash, `r:` and its URL without
-- `https://` and `/robots.txt`, or `R:` and another URL, as {when (s), what it was answered with}. Of a source with many hosts
-- sixteen are noted in four days.
function report.note_robots(ctx, source, url, result)
  local wall = math.floor(ctx.wall / 1000000)
  local block = math.floor(wall / (BLOCK_HOURS * 3600))
  local key, origin = ctx.K.requests_of .. text(block) .. ':' .. source, url:match('^https://(.*)/robots%.txt$')
  local field = origin and 'r:' .. origin or 'R:' .. url
  if #url > LONGEST_ROBOTS_URL then return end
  if redis.call('HEXISTS', key, field) ~= 1 then
    local noted = 0
    for _, name in ipairs(redis.call('HKEYS', key)) do
      if name:find('^[rR]:') then noted = noted + 1 end
    end
    if noted >= MOST_ROBOTS then return end
  end
  redis.call('HSET', key, field, cmsgpack.pack({wall, result}))
  redis.call('EXPIRE', key, text((block + 1) * BLOCK_HOURS * 3600 + KEPT_S - wall))
end

-- Trouble, or its end: `kind` counts in the hour, where there is one.
function report.note_incident(ctx, source, what, why, kind)
  local key = ctx.K.incidents_of .. source
  redis.call('LPUSH', key, cmsgpack.pack({math.floor(ctx.wall / 1000000), what, why:sub(1, 160)}))
  redis.call('LTRIM', key, 0, MOST_INCIDENTS - 1)
  redis.call('EXPIRE', key, KEPT_S)
  if kind then report.note_kind(ctx, source, kind, 1) end
end
