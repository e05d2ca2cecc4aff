-- Reserves the next send slot of a source for a request that has no lease (robots.txt, scrapy shell).
-- needs: domains, due
-- reads: rates slots halted pulse
--
-- A: source, or domain (the source is then the catalogue's for it, else the domain itself); min_rate; circuit.
-- Reply: {moment, slot, source}; slot is '' without a pulse and for a source that is halted, held or at
-- rate 0: try again later.

local pulse = strings(K.pulse)
local source = A.source or source_of_domain(A.domain)
look_up({source})
register_source(source)
local interval = interval_of(effective_rate(source))
if not pulse or resume > now or not interval or held_until(source) > 0 then return {moment(), '', source} end
keep_time()
local slot = next_slot(source)
set_slot(source, slot + interval)
save_slots()
return {moment(), text(slot), source}
