-- Drops what waits of a source, wherever it waits, a bounded part of it at a call: of an excluded source, or because an
-- operator empties its queue.
--
-- A: source; what ('excluded': only if that source is excluded; or 'purged'); count (requests at most; 0: only tells); by
--    (the operator who begins to empty its queue; none: nothing is noted in the audit trail); min_rate; circuit.
-- Reply: {requests dropped, requests that still wait}
--
-- An extent counts as one request towards `count`: only its reference moves. A worker with the store reads it later, for the
-- seen filter to forget its requests like the others (take_extent.lua).
--
-- With what was dropped goes what it took of the source's budget for links: all of it, for what was fetched is not counted
-- apart. Otherwise links that are found again would be beyond it.
--
-- Not what workers hold, nor seeds that are not enqueued yet.
register('drop_queued', function(ctx, K, A)
  local source = A.source
  due_index.look_up(ctx, {source})
  local waiting = queues.backlog_of(ctx, source) + queues.tail_of(ctx, source) + queues.spilled_of(ctx, source)
  local left = (A.what ~= 'excluded' or exclusions.has(ctx, source)) and A.count or 0

  local function take(keys, into)
    for _, key in ipairs(keys) do
      for _, one in ipairs(left > 0 and redis.call('LPOP', key, left) or {}) do into[#into + 1], left = one, left - 1 end
    end
    return into
  end

  -- First what is beyond its window: whoever stops here leaves a queue, which the rest of it goes through.
  local references = take(queues.extents_of(ctx, source), {})
  local entries = take(queues.overflow_lists_of(ctx, source), {})
  local of_extents, from_overflow = 0, #entries
  local delayed = left > 0 and redis.call('ZPOPMIN', K.delayed_of .. source, left) or {}
  for index = 1, #delayed, 2 do entries[#entries + 1], left = queues.entry_of(delayed[index]), left - 1 end
  take(queues.keys_of(ctx, source), entries)

  if #references > 0 then redis.call('RPUSH', packs.dropped(ctx), unpack(references)) end
  for _, reference in ipairs(references) do of_extents = of_extents + queues.requests_in(reference) end
  local dropped = #entries + of_extents
  if dropped > 0 then
    redis.call('HDEL', K.ledger, source)
    redis.call('DEL', K.found_hosts_of .. source)
    exclusions.drop(ctx, source, A.what, entries)
    statistics.note(ctx, source, A.what, of_extents)
    queues.count(ctx, 'outstanding', from_overflow - #entries)
    queues.count(ctx, 'overflow', -from_overflow - of_extents)
    queues.count(ctx, 'spilled', -of_extents)
    queues.look_anew(ctx, source)
    ctx.touched[source] = true
  end
  if A.by then
    local name = audit.shown_name(ctx, source)
    local msg = string.format('%s: its queue is emptied of %d requests', name, waiting)
    audit.note(ctx, 'queue_purged', {source = name, type = 'operator', msg = msg, by = 'operator, ' .. A.by})
  end
  return {dropped, waiting - dropped}
end, {'allow-oom'})
