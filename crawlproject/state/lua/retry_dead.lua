-- Gives dead letters another life.
-- needs: belonging, dead_letters, queues, due
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
      register_source(source)
      if append(source, {letter.entry}) then
        touched[source] = true
        requests = requests + 1
      end
    end
  end
end
if requests > 0 then redis.call('INCRBY', K.outstanding, requests) end
schedule_all(touched)
return moved
