-- Gives dead letters another life.
--
-- A: min_rate; circuit; dead_letters, a list of {id, source, entry, name, domain} or {id, source, seed}; a request goes to the
--    source that `name` and `domain`, each of which may be missing, tell by now, else to the one that it was of.
-- Reply: dead letters moved. One that is gone already is passed over, so that a repeated call moves nothing twice; so is one for
--    another shard, the list of which is full.
register('retry_dead', function(ctx, K, A)
  local moved, requests, touched = 0, 0, {}

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
      touched[source] = true
      if queues.arrive(ctx, source, letter.entry, '', 0, true, true) then requests = requests + 1 end
    end
  end

  for _, letter in ipairs(A.dead_letters) do
    local source = not letter.seed and source_of(letter)
    local shard = source and shards.is_elsewhere(ctx, source) and shards.shard_of(ctx, source)
    if (not shard or shards.has_room(ctx, shard)) and dead_letters.remove(ctx, letter.id, letter.source) then
      moved = moved + 1
      retry(letter, source, shard)
    end
  end
  if requests > 0 then redis.call('INCRBY', K.outstanding, requests) end
  due_index.schedule_all(ctx, touched)
  return moved
end, {'allow-oom'})
