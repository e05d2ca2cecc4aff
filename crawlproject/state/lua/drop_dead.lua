-- Deletes dead letters for good.
--
-- A: letters, a list of {id, source}.
-- Reply: letters deleted; those that are gone already are passed over.

local dropped = 0
for _, letter in ipairs(A.letters) do
  if exhume(letter.id, letter.source) then dropped = dropped + 1 end
end
return dropped
