-- The copies of robots.txt that all workers share, and the delays that they ask of a source.
local robots = {}

local DAY_US = 86400000000
local LONGEST_DELAY_S = 86400

-- A copy is a map: `kind` and `body` (see keep_robots.lua); `fresh` (us: it may be used until then); `delay` (s between requests
-- that it asks for, nil: none). While it cannot be had: `since` (us), `failures`, `retry` (us: tried again from then on),
-- `reason`. While it is fetched: `token` (of that look-up), `locked` (us: nobody else does until then).
function robots.copy_of(ctx, url)
  local stored = redis.call('GET', ctx.K.robots_of .. url)
  return stored and cmsgpack.unpack(stored) or {}
end

-- Copies with more than a short text stand in K.robots_stored, so that the size of all can be bounded: by when they were stored
-- (s) times 2^20, plus their size in bytes. So the oldest are found, and what each counts for is known even when it has
-- expired. A copy that is needed is stored anew each day at the latest. The member '' has the sum of the sizes.
local SIZES = 2 ^ 20 -- above the largest size
local SHORT, OVERHEAD = 256, 350 -- bytes: of a text that does not count; of a copy beside its text, its place here included
local MAX_SIZE = 2 ^ 30 -- bytes
local OLDEST_US = 4 * DAY_US -- what is older has expired, and nobody has looked since

-- Stores a copy until two days after it has run out; how long it cannot be had is known for 60 days.
function robots.store(ctx, url, copy)
  local last = math.max((copy.fresh or -2 * DAY_US) + 2 * DAY_US, (copy.retry or -60 * DAY_US) + 60 * DAY_US, copy.locked or 0)
  if last > ctx.now then
    redis.call('SET', ctx.K.robots_of .. url, cmsgpack.pack(copy), 'PX', text(math.ceil((last - ctx.now) / 1000)))
  else
    redis.call('DEL', ctx.K.robots_of .. url)
  end
  local length = copy.body and #copy.body or 0
  local size = length > SHORT and math.min(length + OVERHEAD, SIZES - 1) or 0
  local before = (tonumber(redis.call('ZSCORE', ctx.K.robots_stored, url)) or 0) % SIZES
  if size > 0 then
    redis.call('ZADD', ctx.K.robots_stored, text(math.floor(ctx.now / 1000000) * SIZES + size), url)
  else
    redis.call('ZREM', ctx.K.robots_stored, url)
  end
  if size ~= before then redis.call('ZINCRBY', ctx.K.robots_stored, text(size - before), '') end
end

-- Drops the oldest copies, at most 100, until all are within MAX_SIZE, and what has expired. For how long one cannot be had stays.
function robots.drop_oldest(ctx)
  for _ = 1, 100 do
    local sum = tonumber(redis.call('ZSCORE', ctx.K.robots_stored, '')) or 0
    local url, score = unpack(redis.call('ZRANGE', ctx.K.robots_stored, 1, 1, 'WITHSCORES'))
    if not url or (sum <= MAX_SIZE and score / SIZES * 1000000 >= ctx.now - OLDEST_US) then return end
    local copy = robots.copy_of(ctx, url)
    copy.kind, copy.body, copy.fresh, copy.delay = nil, nil, nil, nil
    robots.store(ctx, url, copy)
  end
end

-- The delays that a source is asked for stand in K.robots_delays_of by the delay (ms) times 2^26, plus the minute in which
-- anybody last looked at that robots.txt.
local MINUTES = 2 ^ 26

function robots.delay_score(ctx, delay)
  local bounded = math.ceil(math.min(delay, LONGEST_DELAY_S) * 1000)
  return text(bounded * MINUTES + math.floor(ctx.now / 60000000))
end

-- The delay (s), and when it was last asked for (us).
function robots.delay_in(score)
  local number = tonumber(score) or 0
  return math.floor(number / MINUTES) / 1000, number % MINUTES * 60000000
end

-- The longest delay (s) that a robots.txt asks of a source: as a rule none.
reads('robots_delays', function(ctx, sources)
  local found, none = {}, none_has(ctx.K.robots_delays_of, sources)
  for index, source in ipairs(sources) do
    local longest = none and {} or redis.call('ZRANGE', ctx.K.robots_delays_of .. source, -1, -1, 'WITHSCORES')
    found[index] = robots.delay_in(longest[2])
  end
  return found
end)
