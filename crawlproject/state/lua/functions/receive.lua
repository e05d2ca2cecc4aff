-- Takes in what has waited for this shard in another one: a batch, once.
--
-- A: origin (the number of that shard, or `users`); batch (its name); entries (of it, seeds and requests, as batch.lua returns them); high_water; refuse_unknown; min_rate; circuit;
--    pace; shard; shards.
-- Reply: 1, also when it was taken before; 0 without a pulse, and nothing was done: then no catalogue says whose these are.
--
-- Whoever calls this waits until a replica has what it wrote before the batch is forgotten; so it writes in each case. A name is
-- known until an hour after it another batch comes from there: however long that shard is away, it is known when it is back.
--
-- A request is taken even at the high-water mark, as far as its source's window goes: it comes in place of one that was in the frontier.
register('receive', function(ctx, K, A)
  local KNOWN_US = 3600000000

  if redis.call('EXISTS', K.pulse) == 0 then return 0 end
  local known = K.received_of .. A.origin
  local is_new = not redis.call('ZSCORE', known, A.batch)
  redis.call('ZREMRANGEBYSCORE', known, '-inf', text(ctx.now - KNOWN_US))
  redis.call('ZADD', known, text(ctx.now), A.batch)
  if not is_new then return 1 end

  local seeds = {}

  -- Takes in a request that was in no frontier so far.
  local function admit(request, unique)
    local name, entry = request.source, request.entry
    local source = belonging.source_of(ctx, name, request.domain)
    local unknown = name and rates.refused(ctx, name) and name or rates.refused(ctx, source) and source
    if exclusions.has_request(ctx, source, entry, name) then
      statistics.note(ctx, source, 'excluded', 1)
    elseif unknown then
      dead_letters.add(ctx, 'entry', entry, unknown, 'unknown source: ' .. unknown, 0)
      statistics.note(ctx, '', 'refused', 1)
    elseif seen_filter.admits(ctx, request) then
      queues.arrive(ctx, source, entry, unique, shards.is_elsewhere(ctx, source) and STAYS_US or 0, true, true)
      statistics.note(ctx, '', 'admitted', 1)
    else
      statistics.note(ctx, '', 'duplicates', 1)
    end
  end

  for number, packed in ipairs(A.entries) do
    local entry, unique = cmsgpack.unpack(packed), A.batch .. '.' .. number
    if entry.kind == 'seed' then
      seeds[#seeds + 1] = entry.seed
    elseif entry.digest then
      admit(entry, unique)
    else
      shards.take_in(ctx, entry, unique, nil, true)
    end
  end
  if #seeds > 0 then redis.call('LPUSH', K.seeds, unpack(seeds)) end
  return 1
end)
