-- Says why nothing goes out of any source.
-- needs: pause
-- reads: pulse paused outstanding
--
-- A: dead_maxlen; timeout (us that a worker may be silent).
-- Reply: {kind, sentence}, both '' while requests may go out; see preludes/pause.lua.

local pulse, unread, outstanding = strings(K.pulse, K.paused, K.outstanding)
return pause_reason(pulse, unread, counter(K.outstanding, outstanding))
