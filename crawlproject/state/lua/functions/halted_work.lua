-- Counts the work of halted sources, a page of them at a time: all at once would hold Redis up.
--
-- A: cursor ('0': from the beginning); count (sources a page).
-- Reply: {cursor of the next page, '0' after the last, requests, seeds that wait beyond the sources' shares}.
-- {'0', 0, 0} when a source that is not halted has work: then nobody needs to count.
register('halted_work', function(ctx, K, A)
  local work, waiting = 0, 0
  if A.cursor == '0' then
    for _, key in ipairs(ctx.due_sets) do
      -- Halted sources are put a second ahead again and again: others come before them.
      for _, source in ipairs(redis.call('ZRANGE', key, 0, 9)) do
        if redis.call('SISMEMBER', K.halted, source) == 0 then return {'0', 0, 0} end
      end
    end
  end
  local page = redis.call('SSCAN', K.halted, A.cursor, 'COUNT', A.count)
  for _, source in ipairs(page[2]) do
    work, waiting = work + queues.backlog_of(ctx, source), waiting + queues.overflow_of(ctx, source)
  end
  return {page[1], work, waiting}
end, {'no-writes'})
