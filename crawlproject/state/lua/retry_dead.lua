-- Gives dead letters another life.
--
-- A: min_rate; letters, a list of {id, source, entry} or {id, source, seed}.
-- Reply: letters moved. One that is gone already is passed over, so that a repeated call moves nothing twice.

require_type(K.seeds, 'list')
local moved, requests, touched = 0, 0, {}
for _, letter in ipairs(A.letters) do
  if exhume(letter.id, letter.source) then
    moved = moved + 1
    if letter.seed then
      redis.call('LPUSH', K.seeds, letter.seed)
    elseif append(letter.source, letter.entry) then
      touched[letter.source] = true
      requests = requests + 1
    end
  end
end
if requests > 0 then redis.call('INCRBY', K.outstanding, requests) end
schedule_all(touched)
return moved
