-- Says why nothing goes out of any source.
--
-- A: dead_maxlen; timeout (us that a worker may be silent).
-- Reply: {kind, sentence}, both '' while requests may go out; see pause.lua.

return pause_reason()
