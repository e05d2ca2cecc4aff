-- Dead letters: requests and seeds that nothing came of.
--
-- A: dead_maxlen (most dead letters; refusals do not count towards it).
local dead_letters = {}

local REFUSALS = '' -- where it is counted, beside the sources, how many are refusals

function dead_letters.refusals_kept(ctx) return tonumber(redis.call('HGET', ctx.K.dead_sources, REFUSALS)) or 0 end

-- `what` is 'entry' (a stored request) or 'seed' (a line of the seed list, as it came). A `refusal` (the site forbids the
-- picture) is no trouble, and does not count towards the bound of dead letters: of these at most `A.dead_maxlen` are
-- kept, and those beyond only counted. `image` is what is known of its image, `fetch` of its last attempt; JSON or nil.
-- Each, kept or not, is an entry of the stream of the event `failed`, too: of it the readers make the event, for what is
-- stored of a request is nothing to Lua. A line of the seed list, which may have any length, stands there as far
-- as a seed can go that is none for another reason than its length.
function dead_letters.add(ctx, what, body, source, reason, deliveries, refusal, image, fetch)
  local fields = {what, body, 'source', source or '', 'reason', reason, 'deliveries', deliveries}
  if image then fields[#fields + 1], fields[#fields + 2] = 'image', image end
  if what == 'seed' then fields[2] = body:sub(1, 20000) end
  redis.call('XADD', ctx.K.failed_events, '*', 'spider', ctx.spider, 'fetch', fetch or '', unpack(fields))
  fields[2] = body
  if refusal and ctx.A.dead_maxlen and dead_letters.refusals_kept(ctx) >= ctx.A.dead_maxlen then
    statistics.note(ctx, '', 'refusals_not_kept', 1)
    return
  elseif refusal then
    fields[#fields + 1], fields[#fields + 2] = 'refusal', 1
    redis.call('HINCRBY', ctx.K.dead_sources, REFUSALS, 1)
  end
  redis.call('XADD', ctx.K.dead, '*', unpack(fields))
  if source and source ~= '' then redis.call('HINCRBY', ctx.K.dead_sources, source, 1) end
end

-- Returns whether it was there.
function dead_letters.remove(ctx, id, source)
  local found = redis.call('XRANGE', ctx.K.dead, id, id)[1]
  if not found then return false end
  redis.call('XDEL', ctx.K.dead, id)
  for index = 1, #found[2], 2 do
    if found[2][index] == 'refusal' then redis.call('HINCRBY', ctx.K.dead_sources, REFUSALS, -1) end
  end
  if source and source ~= '' then
    local left = redis.call('HINCRBY', ctx.K.dead_sources, source, -1)
    if left <= 0 then redis.call('HDEL', ctx.K.dead_sources, source) end
  end
  return true
end

function dead_letters.are_at_bound(ctx)
  local kept = redis.call('XLEN', ctx.K.dead)
  if kept < ctx.A.dead_maxlen then return false end
  return kept - dead_letters.refusals_kept(ctx) >= ctx.A.dead_maxlen
end
