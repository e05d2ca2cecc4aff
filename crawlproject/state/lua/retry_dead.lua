-- Gives dead letters another life.
-- needs: dead_letters, queues, due
-- types: list seeds, counter outstanding
--
-- A: min_rate; circuit; dead_letters, a list of {id, source, entry} or {id, source, seed}.
-- Reply: dead letters moved. One that is gone already is passed over, so that a repeated call moves nothing twice.

local moved, requests, touched = 0, 0, {}
for _, letter in ipairs(A.dead_letters) do
  if remove_dead_letter(letter.id, letter.source) then
    moved = moved + 1
    if letter.seed then
      redis.call('LPUSH', K.seeds, letter.seed)
    elseif append(letter.source, {letter.entry}) then
      touched[letter.source] = true
      requests = requests + 1
    end
  end
end
if requests > 0 then redis.call('INCRBY', K.outstanding, requests) end
schedule_all(touched)
return moved
