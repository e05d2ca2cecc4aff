-- Puts sources into the due sets that they belong in by the work that they have.
--
-- A: sources, some hundred; min_rate; circuit; pace.
-- Reply: how many of them stood elsewhere, or in none, though they have work.
register('reschedule', function(ctx, K, A)
  local was, wanted = {}, 0
  due_index.look_up(ctx, A.sources)
  for _, source in ipairs(A.sources) do
    local place = due_index.place_of(ctx, source)
    local stands = place and redis.call('ZSCORE', ctx.DUE[place], source)
    was[source] = stands and place
    -- The best class that it has is looked for anew, whatever was noted.
    ctx.places[source] = false
  end
  for _, source in ipairs(A.sources) do
    due_index.schedule(ctx, source)
    if ctx.places[source] ~= was[source] then
      wanted = wanted + 1
      if was[source] then redis.call('ZREM', ctx.DUE[was[source]], source) end
      if not ctx.places[source] then ctx.moves[source] = false end
    elseif was[source] then
      ctx.moves[source] = nil -- it keeps its turn
    end
  end
  due_index.save(ctx)
  return wanted
end, {'allow-oom'})
