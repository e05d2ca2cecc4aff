-- Gives dead letters another life.
-- needs: belonging, dead_letters, queues, due, shards
-- types: list seeds, counter outstanding
--
-- A: min_rate; circuit; dead_letters, a list of {id, source, entry, name, domain} or {id, source, seed}; a request goes to the
--    source that `name` and `domain`, each of which may be missing, tell by now, else to the one that it was of.
-- Reply: dead letters moved. One that is gone already is passed over, so that a repeated call moves nothing twice.

local moved, requests, touched = 0, 0, {}
for _, letter in ipairs(A.dead_letters) do
  if remove_dead_letter(letter.id, letter.source) then
    moved = moved + 1
    if letter.seed then
      redis.call('LPUSH', K.seeds, letter.seed)
    else
      local source = letter.domain and source_of(letter.name, letter.domain) or letter.source
      if is_elsewhere(source) then
        local name = letter.domain and letter.name or not letter.domain and source or nil
        if send(shard_of(source), 'request', letter.entry, name, letter.domain, 0, true) then
          requests = requests + 1
        else
          add_dead_letter('entry', letter.entry, source, wrong(K.outbox_of .. shard_of(source)), deliveries_of(letter.entry))
        end
      else
        register_source(source)
      end
      if not is_elsewhere(source) and append(source, {letter.entry}) then
        touched[source] = true
        requests = requests + 1
      end
    end
  end
end
if requests > 0 then redis.call('INCRBY', K.outstanding, requests) end
schedule_all(touched)
return moved
