-- Mends what is derived from the keys of a frontier, for some of them that the audit has found (frontier/audit.py).
--
-- A: queues, overflows, extents (priority:source each), delayed, revisits (sources), workers (with leases, or seeds in
--    hand): what stands behind the prefixes of the keys found, a few hundred in all; min_rate; circuit; pace.
-- Reply: {requests in these queues, delayed ones included, and in these overflows; of the latter in extents; how much was
--    mended: sources that have work and were not due, or not where they should be, workers that nobody watched, anything else}
--
-- Each source with work is due, known, and on the watchlist if it is in trouble; one with an overflow has something queued, or
-- needs an extent. Each pack with an extent is needed: how many extents it has is not counted anew, as the audit looks again
-- before an hour is over (sweep_packs.lua). Whoever holds leases or seeds is among the workers: a dead one is silent from now
-- on, and loses them as usual.
register('mend', function(ctx, K, A)
  local sources, has_work, sums, others, is_needed = {}, {}, {0, 0, 0}, 0, {}

  -- Notes that a source has work. A key may have gone since it was found.
  local function note(source, place, count)
    if count == 0 then return end
    if not has_work[source] then sources[#sources + 1] = source end
    has_work[source], sums[place] = true, sums[place] + count
  end

  for _, name in ipairs(A.delayed) do note(name, 1, redis.call('ZCARD', K.delayed_of .. name)) end
  for _, name in ipairs(A.queues) do note(name:sub(3), 1, redis.call('LLEN', K.queue_of .. name)) end
  for _, name in ipairs(A.overflows) do
    note(name:sub(3), 2, redis.call('LLEN', K.overflow_of .. name))
    queues.note_waiting(ctx, name:sub(3), K.overflow_of .. name)
  end
  for _, name in ipairs(A.extents) do
    for _, reference in ipairs(redis.call('LRANGE', K.extents_of .. name, 0, -1)) do
      local pack, number = reference:match('^[^:]*'), queues.requests_in(reference)
      note(name:sub(3), 2, number)
      sums[3] = sums[3] + number
      if not is_needed[pack] and tonumber(redis.call('ZSCORE', K.packs, pack) or 0) <= 0 then
        redis.call('ZADD', K.packs, 1, pack)
        others = others + 1
      end
      is_needed[pack] = true
    end
  end

  for _, names in ipairs({A.overflows, A.extents}) do
    for _, name in ipairs(names) do queues.promote(ctx, name:sub(3)) end
  end
  local unscheduled, unwatched = due_index.mend(ctx, sources), 0
  for _, source in ipairs(sources) do
    if rates.register(ctx, source) then others = others + 1 end
    if circuits.is_troubled(ctx, source) then others = others + redis.call('SADD', K.watchlist, source) end
  end
  for _, source in ipairs(A.revisits) do
    if revisits.mend(ctx, source) then others = others + 1 end
  end
  for _, worker in ipairs(A.workers) do
    local holds = redis.call('EXISTS', K.leases_of .. worker, K.processing_of .. worker) > 0
    if holds then unwatched = unwatched + redis.call('ZADD', K.workers, 'NX', text(ctx.now), worker) end
  end
  statistics.note(ctx, '', 'mended', unscheduled + unwatched + others)
  return {sums[1], sums[2], sums[3], unscheduled, unwatched, others}
end, {'allow-oom'})
