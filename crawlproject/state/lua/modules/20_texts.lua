-- Texts of pages: under which address each was seen last.
--
-- A table of fixed size, direct-mapped: a place holds the text that was noted last, nine bytes. Which place a text has
-- follows from its digest, so an older text is forgotten when another one takes its place. A part is allocated whole.
local texts = {}

-- Notes that a text (the fields of Text in state/calls/frontier.py) was seen; returns whether it was not known, or was last seen under
-- this very address.
function texts.note(ctx, seen)
  local key = ctx.K.texts_of .. text(seen.part)
  local at = 9 * seen.place
  local found = redis.call('GETRANGE', key, at, at + 8)
  if found:sub(1, 4) == seen.digest then return found:sub(5) == seen.address end
  if #found < 9 then redis.call('SETRANGE', key, 9 * seen.places - 1, '\0') end -- the whole part, which is shorter
  redis.call('SETRANGE', key, at, seen.digest .. seen.address)
  return true
end
