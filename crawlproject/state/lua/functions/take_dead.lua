-- Takes dead letters out: for another life, or for good.
--
-- A: min_rate; circuit; dead_letters, a list of {id, source, entry, name, domain} or {id, source, seed}, or of {id, source}
--    for those that are deleted for good; a request goes to the
--    source that `name` and `domain`, each of which may be missing, tell by now, else to the one that it was of.
-- Reply: dead letters taken. One that is gone already is passed over, so that a repeated call moves nothing twice; so is one for
--    another shard, the list of which is full.
register('take_dead', function(ctx, K, A)
  local taken = 0
  for _, letter in ipairs(A.dead_letters) do
    local request = {entry = letter.entry, source = letter.source, stray = true}
    if letter.domain then request.source, request.domain = letter.name, letter.domain end
    local source = letter.entry and belonging.source_of(ctx, request.source, request.domain)
    local has_room = not source or not shards.is_elsewhere(ctx, source) or shards.has_room(ctx, shards.shard_of(ctx, source))
    if has_room and dead_letters.remove(ctx, letter.id, letter.source) then
      taken = taken + 1
      if letter.seed then redis.call('LPUSH', K.seeds, letter.seed) end
      if source then shards.take_in(ctx, request, '') end
    end
  end
  return taken
end, {'allow-oom'})
