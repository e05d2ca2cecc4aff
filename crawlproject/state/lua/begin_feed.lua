-- Begins a feed of files, or takes it over from the process that has begun it.
-- reads: feed_of
--
-- A: feed; run (this process); resume (where the last one stopped; else from the beginning); keep (s).
-- Reply: the position of the last seeds that were put into the list; '' if it begins.

local key = K.feed_of .. A.feed
local position = A.resume and read('hash', 'HGET', key, 'position') or ''
require_type('hash', key)
redis.call('HSET', key, 'run', A.run, 'position', position)
redis.call('EXPIRE', key, A.keep)
return position
