-- Prelude: why nothing goes out of any source. Decided here alone; lease.lua, survey.lua and pause_reason.lua tell it.
--
-- A: dead_maxlen (dead letters at most); timeout (us that a worker may be silent; nil: a worker asks, so one runs).

local function workers_alive() return redis.call('ZCOUNT', K.workers, text(now - A.timeout), '+inf') end

-- Returns {kind, sentence for people}; {'', ''} while requests may go out. The kinds: 'no pulse', 'paused', 'no worker'.
local function pause_reason()
  if redis.call('EXISTS', K.pulse) == 0 then
    local led = redis.call('EXISTS', K.leader) == 1
    return {'no pulse', led and 'the leader has not read the catalogue yet (see its log)' or 'no worker leads'}
  end
  local unread = redis.call('GET', K.paused)
  if unread then return {'paused', unread} end
  if redis.call('XLEN', K.dead) >= A.dead_maxlen then
    return {'paused', 'dead letters have reached CRAWL_DEAD_MAXLEN: retry or drop some (scrapy dead), or raise it'}
  end
  if A.timeout and (number(redis.call('GET', K.outstanding)) or 0) > 0 and workers_alive() == 0 then
    return {'no worker', 'no worker is running: start one (scrapy crawl images)'}
  end
  return {'', ''}
end
