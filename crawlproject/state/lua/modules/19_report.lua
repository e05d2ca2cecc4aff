-- What was requested of each source, by hours, and what its trouble has led to: what `scrapy report` tells.
--
-- An hour in which something happened is a field of a hash that holds four days of a source:
--    {requests, bytes of bodies received, the first and the last of them (ms of the hour), the most in one second, which
--    second that was (of the hour), the highest rate in force (1/1000 rps), kind, how many, kind, ...}
-- Kinds are what the requests ended in (a status, `timeout`, ...); `-` and what kept one from being sent; `txt`: so many of
-- them were for a robots.txt; `robots`, `opt_out`: what the site forbids, and was not requested or not kept; `slowed`,
-- `held`, `opened`, `halted`; `lost`: leases of workers that died, which may have sent their requests.
--
-- The hours are those of the server's clock, and so are the seconds, as in the access log of a site. A request is counted
-- when its lease ends, so once, and stands where it was sent. How many a source got in each of the last seconds is known
-- for as long as a fetch may take (DOWNLOAD_TIMEOUT).
--
-- Hours are written at the end of a call, by report.save(), and windows with them.
local report = {}

local BLOCK_HOURS = 96 -- crawlproject/status/requests.py reads these hashes, too
local HOUR_US = 3600000000
local KEPT_S = 7776000 -- 90 days
local KEPT_SECONDS = 64
local KEPT_SECONDS_OF_SLOW = 10 -- of a source of less than 1 rps
local FIRST_KIND = 8
local MOST_KINDS = 24 -- in an hour: beyond, statuses count by their class
local MOST_INCIDENTS = 24
local MOST_ROBOTS = 16 -- URLs
local LONGEST_ROBOTS_URL = 200

function state.hours() return {} end -- what this call has read, by hour and source

function report.hour_of(ctx, source, wall)
  local at = math.floor(wall / HOUR_US)
  local place = at .. ':' .. source
  local hour = ctx.hours[place]
  if not hour then
    local block = math.floor(at / BLOCK_HOURS)
    hour = {key = ctx.K.requests_of .. text(block) .. ':' .. source, field = text(at % BLOCK_HOURS)}
    local packed = redis.call('HGET', hour.key, hour.field)
    hour.values = packed and cmsgpack.unpack(packed) or {0, 0, HOUR_US / 1000, 0, 0, 0, 0}
    if not packed then hour.ends = (block + 1) * BLOCK_HOURS * 3600 + KEPT_S - math.floor(wall / 1000000) end
    ctx.hours[place] = hour
  end
  hour.changed = true
  return hour
end

function report.count_kind(values, kind, many)
  for place = FIRST_KIND, #values, 2 do
    if values[place] == kind then
      values[place + 1] = values[place + 1] + many
      return
    end
  end
  if #values >= FIRST_KIND + 2 * MOST_KINDS and kind:find('^%d%d%d') then
    report.count_kind(values, kind:sub(1, 1) .. 'xx', many)
  else
    values[#values + 1], values[#values + 2] = kind, many
  end
end

-- Counts a request in its second; returns how many there are in that by now. One that comes too late to tell is one. In the
-- window of the source `seconds` has two bytes for each, the newest first, which is the second `newest`.
function report.count_in_second(ctx, source, second, rate)
  local window, kept = windows.change(ctx, source), rate < 1000 and KEPT_SECONDS_OF_SLOW or KEPT_SECONDS
  local counts = window.seconds
  if second > window.newest then
    local gap = math.min(second - window.newest, kept)
    counts, window.newest = ('\0'):rep(2 * gap) .. counts:sub(1, 2 * (kept - gap)), second
  end
  local place = 2 * (window.newest - second)
  if place < 2 * kept then
    if #counts < place + 2 then counts = counts .. ('\0'):rep(place + 2 - #counts) end
    local high, low = counts:byte(place + 1, place + 2)
    local many = math.min(high * 256 + low + 1, 65535)
    window.seconds = counts:sub(1, place) .. string.char(math.floor(many / 256), many % 256) .. counts:sub(place + 3)
    return many
  end
  return 1
end

-- A request of `source` was sent at `at` (us), at a rate of `rate` (1/1000 rps), and has ended in `kind`, with a body of
-- so many bytes.
function report.note_request(ctx, source, at, kind, bytes, rate)
  if at > ctx.now or at < ctx.now - HOUR_US then at = ctx.now end
  local wall = at - ctx.ahead
  local hour = report.hour_of(ctx, source, wall)
  local values, moment = hour.values, math.floor(wall % HOUR_US / 1000)
  local many = report.count_in_second(ctx, source, math.floor(wall / 1000000), rate)
  values[1], values[2] = values[1] + 1, values[2] + bytes
  values[3], values[4] = math.min(values[3], moment), math.max(values[4], moment)
  if many > values[5] then values[5], values[6] = many, math.floor(moment / 1000) end
  values[7] = math.max(values[7], rate)
  report.count_kind(values, kind, 1)
  return hour
end

-- Something else has happened to a source, so often.
function report.note_kind(ctx, source, kind, many) report.count_kind(report.hour_of(ctx, source, ctx.wall).values, kind, many) end

function report.save(ctx)
  for _, hour in pairs(ctx.hours) do
    if hour.changed then redis.call('HSET', hour.key, hour.field, cmsgpack.pack(hour.values)) end
    if hour.ends then redis.call('EXPIRE', hour.key, text(hour.ends)) end
    hour.changed, hour.ends = false, nil
  end
  windows.save(ctx)
end

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
