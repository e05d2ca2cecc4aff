-- Deletes dead letters for good.
--
-- A: dead_letters, a list of {id, source}.
-- Reply: dead letters deleted; those that are gone already are passed over.
register('drop_dead', function(ctx, K, A)
  local dropped = 0
  for _, letter in ipairs(A.dead_letters) do
    if dead_letters.remove(ctx, letter.id, letter.source) then dropped = dropped + 1 end
  end
  return dropped
end, {'allow-oom'})
