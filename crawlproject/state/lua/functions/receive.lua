-- Takes in what has waited for this shard in another one: a batch, once.
--
-- A: origin (the number of that shard, or `users`); batch (its name); entries (of it, as batch.lua returns them: seeds, and requests
--    that were in a frontier before); high_water; refuse_unknown; min_rate; circuit; pace; shard; shards.
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
  for number, packed in ipairs(A.entries) do
    local entry = cmsgpack.unpack(packed)
    if entry.kind == 'seed' then
      seeds[#seeds + 1] = entry.seed
    else
      shards.take_in(ctx, entry, A.batch .. '.' .. number, nil, true)
    end
  end
  if #seeds > 0 then redis.call('LPUSH', K.seeds, unpack(seeds)) end
  return 1
end)
