-- The bound of dead letters.
--
-- A: dead_maxlen (most dead letters; refusals do not count, see dead_letters.lua).
local dead_bound = {}

function dead_bound.are_dead_letters_at_bound(ctx)
  local kept = redis.call('XLEN', ctx.K.dead)
  if kept < ctx.A.dead_maxlen then return false end
  return kept - dead_letters.refusals_kept(ctx) >= ctx.A.dead_maxlen
end
