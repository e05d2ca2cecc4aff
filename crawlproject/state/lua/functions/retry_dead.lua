-- Gives dead letters another life.
--
-- A: min_rate; circuit; dead_letters, a list of {id, source, entry, name, domain} or {id, source, seed}; a request goes to the
--    source that `name` and `domain`, each of which may be missing, tell by now, else to the one that it was of.
-- Reply: dead letters moved. One that is gone already is passed over, so that a repeated call moves nothing twice.
register('retry_dead', function(ctx, K, A)
  local moved, requests, touched = 0, 0, {}
  for _, letter in ipairs(A.dead_letters) do
    if dead_letters.remove(ctx, letter.id, letter.source) then
      moved = moved + 1
      if letter.seed then
        redis.call('LPUSH', K.seeds, letter.seed)
      else
        local source = letter.domain and belonging.source_of(ctx, letter.name, letter.domain) or letter.source
        if shards.is_elsewhere(ctx, source) then
          local name = letter.domain and letter.name or not letter.domain and source or nil
          shards.send(ctx, shards.shard_of(ctx, source), 'request', letter.entry, name, letter.domain, 0, true)
        else
          touched[source] = true
          if not queues.arrive(ctx, source, letter.entry, '', 0, true, true) then requests = requests - 1 end
        end
        requests = requests + 1
      end
    end
  end
  if requests > 0 then redis.call('INCRBY', K.outstanding, requests) end
  due_index.schedule_all(ctx, touched)
  return moved
end, {'allow-oom'})
