-- What the robots.txt files of a source ask for, and what their copies take.
local robots = {}

local LONGEST_DELAY_S = 86400

-- What is known
function state.robots_delays() return {} end

-- A delay (s) as it is stored, within bounds.
function robots.bounded_delay(stored) return math.min(tonumber(stored) or 0, LONGEST_DELAY_S) end

-- Looks at several sources at once: as a rule none of them is asked for one.
function robots.look_up_delays(ctx, sources)
  if not none_has(ctx.K.robots_delays_of, sources) then return end
  for _, source in ipairs(sources) do ctx.robots_delays[source] = 0 end
end

-- The longest delay (s) that a robots.txt asks of a source.
function robots.delay_of(ctx, source)
  if ctx.robots_delays[source] == nil then
    local longest = redis.call('ZRANGE', ctx.K.robots_delays_of .. source, -1, -1, 'WITHSCORES')
    ctx.robots_delays[source] = robots.bounded_delay(longest[2])
  end
  return ctx.robots_delays[source]
end

-- The delay (s) that it has to keep: none where its operator has lifted it.
function robots.binding_delay_of(ctx, source) return rates.is_over_robots(ctx, source) and 0 or robots.delay_of(ctx, source) end

-- What the copies of robots.txt take in all, so that it can be bounded.
--
-- Those with a text stand in K.robots_stored, by when they were stored (s) times 2^20, plus their size in bytes: so the
-- oldest are found, and what each counts for is known even when it has expired. A copy that is needed is stored anew
-- each day at the latest, so the oldest are those that nobody has needed for longest. K.robots_size is the sum. A text that
-- leaves the copy compact (see robots_texts.py) hardly takes more than none, and less than its place here: it counts as none.

local SIZES = 2 ^ 20 -- above the largest size
local COMPACT = 64 -- bytes
local OVERHEAD = 900 -- bytes of a copy beside its text, its place here included

-- Notes the length of a copy's text; up to COMPACT it counts as none.
function robots.note_size(ctx, url, length)
  local before = tonumber(redis.call('ZSCORE', ctx.K.robots_stored, url)) or 0
  local size = length > COMPACT and math.min(length + OVERHEAD, SIZES - 1) or 0
  if size > 0 then
    redis.call('ZADD', ctx.K.robots_stored, text(math.floor(ctx.now / 1000000) * SIZES + size), url)
  else
    redis.call('ZREM', ctx.K.robots_stored, url)
  end
  if size ~= before % SIZES then redis.call('INCRBY', ctx.K.robots_size, text(size - before % SIZES)) end
end

-- Drops the oldest copies, at most 1,000, until all are within `maxsize` bytes. Of one that asks for a delay the moment
-- when it was last needed stays: until then its delay counts.
function robots.drop_oldest(ctx, maxsize)
  local size = tonumber(redis.call('GET', ctx.K.robots_size) or 0)
  for _ = 1, 1000 do
    if size <= maxsize then break end
    local oldest = redis.call('ZPOPMIN', ctx.K.robots_stored)
    if not oldest[1] then -- somebody has deleted it
      redis.call('DEL', ctx.K.robots_size)
      return
    end
    local key, counted = ctx.K.robots_of .. oldest[1], oldest[2] % SIZES
    if (tonumber(redis.call('HGET', key, 'delay')) or 0) > 0 then
      redis.call('HDEL', key, 'kind', 'body', 'until')
    else
      redis.call('HDEL', key, 'kind', 'body', 'until', 'delay', 'asked')
    end
    redis.call('DECRBY', ctx.K.robots_size, text(counted))
    size = size - counted
  end
end

-- Looks at the oldest copies, at most `count`: those that have expired count no more, others are put to the end.
function robots.forget_expired(ctx, count)
  local bound = text(math.floor(ctx.now / 1000000 - 4 * 86400) * SIZES)
  local found = redis.call('ZRANGEBYSCORE', ctx.K.robots_stored, '-inf', bound, 'WITHSCORES', 'LIMIT', 0, count)
  for index = 1, #found, 2 do
    local url = found[index]
    local length = redis.call('HSTRLEN', ctx.K.robots_of .. url, 'body')
    robots.note_size(ctx, url, length)
  end
end
