-- The bound of dead letters.
-- needs: numbers
-- reads: dead
--
-- A: dead_maxlen (most dead letters; refusals do not count, see dead_letters.lua).

local function are_dead_letters_at_bound()
  local kept = read('stream', 'XLEN', K.dead)
  if kept < A.dead_maxlen then return false end
  return kept - math.max(number(attempt('GET', K.dead_refusals) or '') or 0, 0) >= A.dead_maxlen
end
