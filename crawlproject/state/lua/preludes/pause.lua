-- Why nothing goes out of any source: decided here alone. lease.lua, collect.lua and pause_reason.lua tell it.
-- needs: clock, dead_bound
-- reads: dead workers
--
-- A: dead_maxlen (most dead letters); timeout (us that a worker may be silent; nil: a worker calls, so one runs).

local function workers_alive() return read('zset', 'ZCOUNT', K.workers, text(now - A.timeout), '+inf') end

-- Returns {kind, sentence for people}; {'', ''} while requests may go out. The kinds: 'no pulse', 'paused', 'no worker'.
-- `pulse` and `unread` (why unread events pause leasing) are the values of K.pulse and K.paused.
local function pause_reason(pulse, unread, outstanding)
  if not pulse then
    local led = redis.call('EXISTS', K.leader) == 1 -- whatever its type: others name that
    return {'no pulse', led and 'the leader has not read the catalogue yet (see its log)' or 'no worker leads'}
  end
  if unread then return {'paused', unread} end
  if are_dead_letters_at_bound() then
    return {'paused', 'dead letters have reached CRAWL_DEAD_MAXLEN: retry or drop some (scrapy dead), or raise it'}
  end
  if A.timeout and outstanding > 0 and workers_alive() == 0 then
    return {'no worker', 'no worker is running: start one (scrapy crawl images)'}
  end
  return {'', ''}
end
