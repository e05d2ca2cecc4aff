-- Reserves the next send slot of a source for a request that has no lease (robots.txt, scrapy shell).
--
-- A: source, or domain (the source is then the catalogue's for it, else the domain itself); min_rate; fetch_lock (an
--    origin whose lock on fetching its robots.txt shall outlast the wait for the slot by a minute; none: no lock).
-- Reply: {moment, slot, source}; slot is '' without a pulse and for a source that is halted, held or at
-- rate 0: ask again later.

local source = A.source or source_of_domain(A.domain)
introduce(source)
local interval = interval_of(effective_rate(source))
if redis.call('EXISTS', K.pulse) == 0 or resume > now or not interval or held_until(source) > 0 then
  return {moment(), '', source}
end
keep_time()
local slot = next_slot(source)
redis.call('ZADD', K.slots, text(slot + interval), source)
if A.fetch_lock then redis.call('PEXPIRE', K.robots_fetch_of .. A.fetch_lock, text((slot - now) / 1000 + 60000)) end
return {moment(), text(slot), source}
