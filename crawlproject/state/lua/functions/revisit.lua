-- Puts the requests for pages whose next look is due into the queues of their sources.
--
-- A: count (sources looked at, at most); high_water; refuse_unknown; min_rate; circuit.
-- Reply: {requests, sources looked at}; {} when nothing was done, at the high-water mark or without a pulse.
--
-- Each goes to the head of its priority's queue. The look after it is planned at once, after twice the interval: whoever
-- settles it says when it shall be. So nothing depends on what becomes of it: one that fails, is dropped, or is lost with Redis'
-- last second, comes again. While a source is halted, held, excluded or refused, its looks are put off.
register('revisit', function(ctx, K, A)
  if redis.call('EXISTS', K.pulse) == 0 or ctx.counters.outstanding >= A.high_water then return {} end
  local sources = redis.call('ZRANGEBYSCORE', K.revisits, '-inf', text(ctx.now), 'LIMIT', 0, A.count)
  if #sources == 0 then return {0, 0} end
  due_index.look_up(ctx, sources)
  exclusions.look_up(ctx, sources)

  local queued = 0

  -- Stores the requests that are due of a source; returns when to look at it again, nil if it has none to look at.
  local function look_at(source)
    local key, next_at = K.revisits_of .. source, nil
    local pages = redis.call('HGETALL', key)
    local is_closed = exclusions.has(ctx, source) or rates.refused(ctx, source) or due_index.held_until(ctx, source) > 0
    for index = 1, #pages, 2 do
      local page = pages[index]
      local at, interval, entry = pages[index + 1]:match('^(%d+) (%d+)\n(.+)$')
      at, interval = tonumber(at), tonumber(interval)
      if at <= ctx.now then
        if not is_closed and not exclusions.has_request(ctx, source, entry) then
          interval = math.min(2 * interval, LONGEST_REVISIT)
          queues.put_back(ctx, source, entry)
          queued, ctx.touched[source] = queued + 1, true
        end
        at = ctx.now + revisits.wait_of(ctx, source, interval, #pages / 2)
        redis.call('HSET', key, page, text(at) .. ' ' .. text(interval) .. '\n' .. entry)
      end
      next_at = math.min(next_at or at, at)
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
    if ctx.touched[source] then rates.register(ctx, source) end
  end
  if queued > 0 then
    queues.count(ctx, 'outstanding', queued)
    statistics.note(ctx, '', 'revisits', queued)
  end
  return {queued, #sources}
end)
