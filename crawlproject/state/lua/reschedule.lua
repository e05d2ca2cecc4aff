-- Puts sources into the due sets that they belong in by the work that they have.
-- needs: due
-- types: hash places
-- reads: rates slots halted
--
-- A: sources, some hundred; min_rate; circuit; pace.
-- Reply: how many of them stood elsewhere, or in none, though they have work.

local was, wanted = {}, 0
look_up(A.sources)
for _, source in ipairs(A.sources) do
  local place = place_of(source)
  local stands = place and redis.call('ZSCORE', DUE[place], source)
  was[source] = stands and place
  -- The best class that it has is looked for anew, whatever was noted.
  places[source] = false
end
for _, source in ipairs(A.sources) do
  schedule(source)
  if places[source] ~= was[source] then
    wanted = wanted + 1
    if was[source] then redis.call('ZREM', DUE[was[source]], source) end
    if not places[source] then moves[source] = false end
  elseif was[source] then
    moves[source] = nil -- it keeps its turn
  end
end
save_due()
return wanted
