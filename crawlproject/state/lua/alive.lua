-- Names the workers that have sent a heartbeat lately, by the crawl's own time (see preludes/clock.lua).
-- needs: clock
-- reads: workers
--
-- A: timeout (us that a worker may be silent).
-- Reply: workers.

return read('zset', 'ZRANGEBYSCORE', K.workers, text(now - A.timeout), '+inf')
