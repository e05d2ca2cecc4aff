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
  local all = A.by and queues.backlog_of(ctx, source) + queues.overflow_of(ctx, source)
  local may_drop = A.what ~= 'excluded' or exclusions.has(ctx, source)
  local left, entries, of_extents = may_drop and A.count or 0, {}, 0
  local function take_from(key, command, ...)
    if #entries >= left then return {} end
    return redis.call(command, key, ...) or {}
  end

  -- First what is beyond its window: whoever stops here leaves a queue, which the rest of it goes through.
  local references = {}
  for _, key in ipairs(queues.extents_of(ctx, source)) do
    for _, reference in ipairs(left > #references and redis.call('LPOP', key, left - #references) or {}) do
      references[#references + 1], of_extents = reference, of_extents + queues.requests_in(reference)
    end
  end
  left = left - #references
  for _, key in ipairs(queues.overflow_lists_of(ctx, source)) do
    for _, entry in ipairs(take_from(key, 'LPOP', left - #entries)) do entries[#entries + 1] = entry end
  end
  local from_overflow = #entries
  local delayed = take_from(K.delayed_of .. source, 'ZPOPMIN', left - #entries)
  for index = 1, #delayed, 2 do
    entries[#entries + 1] = queues.entry_of(delayed[index])
  end
  for _, key in ipairs(queues.keys_of(ctx, source)) do
    for _, entry in ipairs(take_from(key, 'LPOP', left - #entries)) do entries[#entries + 1] = entry end
  end
  local of_frontier = #entries - from_overflow
  if #entries + #references > 0 then
    redis.call('HDEL', K.ledger, source)
    redis.call('DEL', K.found_hosts_of .. source)
  end
  if #references > 0 then
    redis.call('RPUSH', packs.dropped(ctx), unpack(references))
    queues.count(ctx, 'overflow', -of_extents)
    queues.count(ctx, 'spilled', -of_extents)
    exclusions.count_dropped(ctx, source, A.what, of_extents)
  end
  if #entries + #references > 0 then
    exclusions.drop(ctx, source, A.what, entries)
    queues.count(ctx, 'outstanding', -of_frontier)
    queues.count(ctx, 'overflow', -from_overflow)
    due_index.schedule_all(ctx, {[source] = true})
  end
  if A.by then
    local name = audit.shown_name(ctx, source)
    local msg = string.format('%s: its queue is emptied of %d requests', name, all)
    audit.note(ctx, 'queue_purged', {source = name, type = 'operator', msg = msg, by = 'operator, ' .. A.by})
  end
  return {#entries + of_extents, queues.backlog_of(ctx, source) + queues.overflow_of(ctx, source)}
end, {'allow-oom'})
