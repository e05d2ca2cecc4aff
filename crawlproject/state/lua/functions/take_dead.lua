-- Takes dead letters out: for another life, or for good.
--
-- A: min_rate; circuit; dead_letters, a list of {id, source, entry, name, domain} or {id, source, seed}, or of {id, source}
--    for those that are deleted for good; a request goes to the
--    source that `name` and `domain`, each of which may be missing, tell by now, else to the one that it was of.
-- Reply: dead letters taken. One that is gone already is passed over, so that a repeated call moves nothing twice; so is one for
--    another shard, the list of which is full.
register('take_dead', function(ctx, K, A)
  local taken, requests = 0, 0

  local function source_of(letter)
    return letter.domain and belonging.source_of(ctx, letter.name, letter.domain) or letter.source
  end

  local function retry(letter, source, shard)
    if letter.seed then
      redis.call('LPUSH', K.seeds, letter.seed)
    elseif shard then
      local name = letter.domain and letter.name or not letter.domain and source or nil
      shards.send(ctx, shard, 'request', {entry = letter.entry, source = name, domain = letter.domain, stray = true})
    else
      ctx.touched[source] = true
      if queues.arrive(ctx, source, letter.entry, '', 0, true, true) then requests = requests + 1 end
    end
  end

  for _, letter in ipairs(A.dead_letters) do
    local source = letter.entry and source_of(letter)
    local shard = source and shards.is_elsewhere(ctx, source) and shards.shard_of(ctx, source)
    if (not shard or shards.has_room(ctx, shard)) and dead_letters.remove(ctx, letter.id, letter.source) then
      taken = taken + 1
      if letter.seed or source then retry(letter, source, shard) end
    end
  end
  queues.count(ctx, 'outstanding', requests)
  return taken
end, {'allow-oom'})
