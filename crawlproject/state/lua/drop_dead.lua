-- Deletes dead letters for good.
-- needs: dead_letters
--
-- A: dead_letters, a list of {id, source}.
-- Reply: dead letters deleted; those that are gone already are passed over.

local dropped = 0
for _, letter in ipairs(A.dead_letters) do
  if remove_dead_letter(letter.id, letter.source) then dropped = dropped + 1 end
end
return dropped
