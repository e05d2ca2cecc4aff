-- Why nothing goes out of any source: decided here alone. lease.lua and collect.lua tell it.
--
-- A: dead_maxlen (most dead letters); timeout (us that a worker may be silent; nil: a worker calls, so one runs);
--    overflow_maxlen (most requests in the tails of all sources: a fifth of them while they cannot be spilled); spider.
local pause = {}

function pause.workers_alive(ctx) return redis.call('ZCOUNT', ctx.K.workers, text(ctx.now - ctx.A.timeout), '+inf') end

-- Returns {kind, sentence for people}; {'', ''} while requests may go out. The kinds: 'no pulse', 'paused', 'no worker'.
function pause.reason(ctx)
  local no_worker = 'no worker is running: scrapy crawl ' .. ctx.spider
  local pulse, unread = unpack(redis.call('MGET', ctx.K.pulse, ctx.K.paused)) -- why unread events pause leasing
  if not pulse then
    local led = redis.call('EXISTS', ctx.K.leader) == 1
    if not led and redis.call('EXISTS', ctx.K.workers) == 0 then return {'no pulse', no_worker} end
    return {'no pulse', led and 'the leader has not read the catalogue yet (see its log)' or 'no worker leads'}
  end
  if unread then return {'paused', unread} end
  if dead_letters.are_at_bound(ctx) then
    local command = 'scrapy dead' .. (ctx.spider == 'images' and '' or ' --spider=' .. ctx.spider)
    return {'paused', 'dead letters have reached CRAWL_STREAM_MAXLEN: retry or drop some (' .. command .. '), or raise it'}
  end
  local fault = 5 * queues.in_tails(ctx) >= ctx.A.overflow_maxlen and redis.call('GET', ctx.K.spill_fault)
  if fault then
    return {'paused', 'requests beyond their sources\' windows have reached a fifth of CRAWL_OVERFLOW_MAXLEN, as ' .. fault}
  end
  if ctx.A.timeout and ctx.counters.outstanding > 0 and pause.workers_alive(ctx) == 0 then
    return {'no worker', no_worker}
  end
  return {'', ''}
end
