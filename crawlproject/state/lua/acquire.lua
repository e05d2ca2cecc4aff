-- Reserves the next send slot of a source for a request that has no lease (robots.txt, scrapy shell).
-- needs: domains, due
-- reads: rates slots halted pulse
--
-- A: source, or domain (the source is then the catalogue's for it, else the domain itself); min_rate; circuit;
--    fetch_lock (an origin whose lock on fetching its robots.txt shall outlast the wait by a minute; none: no lock).
-- Reply: {moment, slot, source, rate}; slot is '' without a pulse and for a source that is halted, held or at
-- rate 0: try again later.

local pulse = strings(K.pulse)
local source = A.source or source_of_domain(A.domain)
look_up({source})
register_source(source)
local rate = effective_rate(source)
local interval = interval_of(rate)
if not pulse or resume > now or not interval or held_until(source) > 0 then return {moment(), '', source, ''} end
keep_time()
local slot = next_slot(source)
set_slot(source, slot + interval)
save_slots()
if A.fetch_lock then redis.call('PEXPIRE', K.robots_fetch_of .. A.fetch_lock, text((slot - now) / 1000 + 60000)) end
return {moment(), text(slot), source, string.format('%.17g', rate)}
