-- Revisits: pages and sitemaps that are looked at again, a few of each source.
--
-- A: pace (see the pace).
--
-- K.revisits_of .. source: the first 8 bytes of what the seen filter knows the page by -> `due interval`, a newline, and the
-- request to store. K.revisits: the source by the first of these moments, or an earlier one. All in microseconds.
--
-- The intervals are the worker's business, but for this: all looks at a source together take a quarter of what may be sent
-- to it, at most, so that they keep no new page from being crawled.
local revisits = {}

local MOST_REVISITS = 8 -- of a source
local LONGEST_REVISIT = 2592000000000 -- 30 days

-- How long a page of a source with `count` of them waits for its next look.
function revisits.wait_of(ctx, source, interval, count)
  local rate = due_index.effective_rate(ctx, source)
  local step = math.max(rate > 0 and 1000000 / rate or LONGEST_REVISIT, ctx.A.pace)
  return math.min(math.max(interval, 4 * count * step), LONGEST_REVISIT)
end

-- Notes when a page is to be looked at again, if its source has not enough others.
function revisits.note(ctx, source, page, entry, interval)
  local pages = ctx.K.revisits_of .. source
  local count = redis.call('HLEN', pages)
  if redis.call('HEXISTS', pages, page) == 0 then
    if count >= MOST_REVISITS then return end
    count = count + 1
  end
  local at = text(ctx.now + revisits.wait_of(ctx, source, interval, count))
  redis.call('HSET', pages, page, at .. ' ' .. text(interval) .. '\n' .. entry)
  redis.call('ZADD', ctx.K.revisits, 'LT', at, source)
end

-- Has a source with such pages looked at when the first of them is due; returns whether nobody would have looked.
function revisits.mend(ctx, source)
  if redis.call('ZSCORE', ctx.K.revisits, source) then return false end
  local first = math.huge
  for _, line in ipairs(redis.call('HVALS', ctx.K.revisits_of .. source)) do first = math.min(first, tonumber(line:match('^%d+'))) end
  return first < math.huge and redis.call('ZADD', ctx.K.revisits, text(first), source) == 1
end
