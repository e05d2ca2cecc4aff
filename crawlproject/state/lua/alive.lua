-- Names the workers that have sent a heartbeat lately, by the crawl's own time (see common.lua).
--
-- A: timeout (us that a worker may be silent).
-- Reply: workers.

return redis.call('ZRANGEBYSCORE', K.workers, text(now - A.timeout), '+inf')
