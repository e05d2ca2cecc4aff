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

  local seeds, outstanding = {}, 0
  local counts = {admitted = 0, duplicates = 0, refused = 0}

  local function take(request, number)
    local name, domain, entry = request.source, request.domain, request.entry
    local source = belonging.source_of(ctx, name, domain) or ''
    local unknown = request.digest and name and rates.refused(ctx, name) and name
      or (not naming.is_valid(source) or rates.refused(ctx, source)) and source
    if exclusions.has_request(ctx, source, entry, name) then
      if request.digest then
        statistics.note(ctx, source, 'excluded', 1)
      else
        exclusions.drop(ctx, source, 'excluded', {entry})
      end
    elseif unknown then
      dead_letters.add(ctx, 'entry', entry, unknown, 'unknown source: ' .. unknown, queues.deliveries_of(entry))
      if request.digest then counts.refused = counts.refused + 1 end
    elseif request.digest and not seen_filter.admits(ctx, request) then
      counts.duplicates = counts.duplicates + 1
    else
      local micros = math.max(request.micros or 0, shards.is_elsewhere(ctx, source) and STAYS_US or 0)
      ctx.touched[source] = true
      if queues.arrive(ctx, source, entry, A.batch .. '.' .. number, micros, true, request.stray or request.digest) then
        outstanding = outstanding + 1
      end
      if request.digest then counts.admitted = counts.admitted + 1 end
    end
  end

  for number, packed in ipairs(A.entries) do
    local entry = cmsgpack.unpack(packed)
    if entry.kind == 'seed' then
      seeds[#seeds + 1] = entry.seed
    else
      take(entry, number)
    end
  end
  if #seeds > 0 then redis.call('LPUSH', K.seeds, unpack(seeds)) end
  queues.count(ctx, 'outstanding', outstanding)
  for name, count in pairs(counts) do statistics.note(ctx, '', name, count) end
  return 1
end)
