-- Says why nothing goes out of any source.
-- needs: pause
-- reads: pulse paused outstanding overflow spilled
--
-- A: dead_maxlen; timeout (us that a worker may be silent).
-- Reply: {kind, sentence}, both '' while requests may go out; see preludes/pause.lua.

local pulse, unread, outstanding, overflow, spilled =
  strings(K.pulse, K.paused, K.outstanding, K.overflow, K.spilled)
local tails = counter(K.overflow, overflow) - counter(K.spilled, spilled)
return pause_reason(pulse, unread, counter(K.outstanding, outstanding), tails)
