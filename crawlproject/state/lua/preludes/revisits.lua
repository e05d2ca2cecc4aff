-- Revisits: pages and sitemaps that are looked at again, a few of each source.
-- needs: clock, due
--
-- A: pace (see preludes/pace.lua).
--
-- K.revisits_of .. source: the first 8 bytes of what the seen filter knows the page by -> `due interval`, a newline, and the
-- request to store. K.revisits: the source by the first of these moments, or an earlier one. All in microseconds.
--
-- The intervals are the worker's business, but for this: all looks at a source together take a quarter of what may be sent
-- to it, at most, so that they keep no new page from being crawled.

local MOST_REVISITS = 8 -- of a source
local LONGEST_REVISIT = 2592000000000 -- 30 days

-- How long a page of a source with `count` of them waits for its next look.
local function wait_of(source, interval, count)
  local rate = effective_rate(source)
  local step = math.max(rate > 0 and 1000000 / rate or LONGEST_REVISIT, A.pace)
  return math.min(math.max(interval, 4 * count * step), LONGEST_REVISIT)
end

-- Notes when a page is to be looked at again, if its source has not enough others.
local function note_revisit(source, page, entry, interval)
  local pages = K.revisits_of .. source
  local count = attempt('HLEN', pages)
  if not count then return end
  if attempt('HEXISTS', pages, page) == 0 then
    if count >= MOST_REVISITS then return end
    count = count + 1
  end
  local at = text(now + wait_of(source, interval, count))
  attempt('HSET', pages, page, at .. ' ' .. text(interval) .. '\n' .. entry)
  attempt('ZADD', K.revisits, 'LT', at, source)
end
