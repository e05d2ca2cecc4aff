-- Puts the requests for pages whose next look is due into the queues of their sources.
-- needs: dead_letters, exclusions, names, queues, rates, due, revisits
-- types: zset revisits, hash totals
-- reads: outstanding pulse rates slots halted
--
-- A: count (sources looked at, at most); high_water; refuse_unknown; min_rate; circuit.
-- Reply: {requests, sources looked at}; {} when nothing was done, at the high-water mark or without a pulse.
--
-- Each goes to the head of its priority's queue. The look after it is planned at once, after twice the interval: whoever
-- settles it says when it shall be. So nothing depends on what becomes of it: one that fails, is dropped, or is lost with Redis'
-- last second, comes again. While a source is halted, held, excluded or refused, its looks are put off.

local outstanding, pulse = strings(K.outstanding, K.pulse)
outstanding = counter(K.outstanding, outstanding)
if not pulse or outstanding >= A.high_water then return {} end
local sources = redis.call('ZRANGEBYSCORE', K.revisits, '-inf', text(now), 'LIMIT', 0, A.count)
if #sources == 0 then return {0, 0} end
look_up(sources)
look_up_excluded(sources)

local queued, touched = 0, {}

-- Stores the requests that are due of a source; returns when to look at it again, nil if it has none to look at.
local function look_at(source)
  if not is_name(source) then return nil end
  local key, next_at = K.revisits_of .. source, nil
  local pages = attempt('HGETALL', key) or {}
  local is_closed = is_excluded(source) or refused(source) or held_until(source) > 0
  for index = 1, #pages, 2 do
    local page = pages[index]
    local at, interval, entry = pages[index + 1]:match('^(%d+) (%d+)\n(.+)$')
    at, interval = number(at, 0), number(interval, 0)
    if not (at and interval) or #entry < 4 then
      redis.call('HDEL', key, page)
      report_data_fault(key .. ' held what was not written by crawlproject: that is removed')
    else
      if at <= now then
        if not is_closed and not is_request_excluded(source, entry) then
          interval = math.min(2 * interval, LONGEST_REVISIT)
          if put_back(source, entry) then queued, touched[source] = queued + 1, true end
        end
        at = now + wait_of(source, interval, #pages / 2)
        redis.call('HSET', key, page, text(at) .. ' ' .. text(interval) .. '\n' .. entry)
      end
      next_at = math.min(next_at or at, at)
    end
  end
  return next_at
end

for _, source in ipairs(sources) do
  local at = look_at(source)
  if at then
    redis.call('ZADD', K.revisits, text(at), source)
  else
    redis.call('ZREM', K.revisits, source)
  end
  if touched[source] then register_source(source) end
end
if queued > 0 then
  redis.call('INCRBY', K.outstanding, queued)
  add(K.totals, 'revisits', queued)
end
schedule_all(touched)
return {queued, #sources}
