-- Notes that a text was seen under an address.
--
-- A: part (of the table), place (in it, from 0), places (in a part); text (4 bytes of its digest), address (5 bytes).
-- Reply: 1 when the text was not known there, or was last seen under this very address; 0 when under another.
--
-- A table of fixed size, direct-mapped: a place holds the text that was noted last, nine bytes. Which place a text has
-- follows from its digest, so an older text is forgotten when another one takes its place. A part is allocated whole.
register('note_text', function(ctx, K, A)
  local key = K.texts_of .. text(A.part)
  local size, at = 9 * A.places, 9 * A.place
  local found = redis.call('GETRANGE', key, at, at + 8)
  if not found then return 1 end
  if #found == 9 and found:sub(1, 4) == A.text then return found:sub(5) == A.address and 1 or 0 end
  if redis.call('STRLEN', key) < size then redis.call('SETRANGE', key, size - 1, '\0') end
  redis.call('SETRANGE', key, at, A.text .. A.address)
  return 1
end)
