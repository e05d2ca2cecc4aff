-- Reserves the next send slot of a source for a request that has no lease (robots.txt, scrapy shell).
-- needs: clock_guard, belonging, due, exclusions, shards
-- reads: rates slots halted pulse
--
-- A: source, or domain, or both (see preludes/belonging.lua); host (of the request); sent_by
--    (the source whose robots.txt leads there; none: the source's own request); horizon (us ahead that a slot is reserved at
--    most); share (of the source's slots that others' robots.txt may take while it has work); min_rate; circuit.
-- Reply: {moment, slot, source, rate, wait, 1 if source or host is excluded, 2 if the source is in another shard}; where slot is '' there is none to be had now:
-- ask again after `wait` (us).
--
-- The horizon is longer than that of leases: a robots.txt goes before the images that wait for it. Nothing is
-- reserved beyond it. Who comes too early keeps nobody's place, and asks again when the slot is within the horizon.
--
-- Two kinds of requests keep a distance to the last of their kind besides: those for others' robots.txt, to a
-- source that has work of its own; and all to a source whose circuit is not closed, which they say nothing about:
-- as many as it has probes in each open period.

local UNKNOWN_US = 2000000 -- when nobody can say: no pulse, halted, a rate of 0

local pulse = strings(K.pulse)
local source = source_of(A.source, A.domain)
if is_excluded(source) or is_host_excluded(A.host) then return {text(now), '', source, '0', text(UNKNOWN_US), 1} end
if is_elsewhere(source) then return {text(now), '', source, '0', '0', 2} end
look_up({source})
register_source(source)
local rate, held, circuit = effective_rate(source), held_until(source), circuit_of(source)
local interval = interval_of(rate)

local function none_before(at) return {text(now), '', source, '0', text(math.max(at - now, 1000)), 0} end

if not pulse or not interval or is_halted(source) then return none_before(now + UNKNOWN_US) end
if resume > now or held > 0 then return none_before(math.max(resume, held)) end
local slot = next_slot(source)
if slot > now + A.horizon then return none_before(slot - A.horizon) end

local distance
if circuit.state ~= 'closed' then
  local rules = rules_of(source)
  distance = rules.open / math.max(math.ceil(rules.probes), 1)
elseif A.sent_by and A.sent_by ~= source and (has_work_at(source) or math.huge) <= slot then
  distance = interval / A.share
end
local turn_key = K.robots_turn_of .. source
if distance then
  local turn = number(attempt('GET', turn_key), 0) or 0
  if turn > slot and turn <= slot + distance then return none_before(turn - A.horizon) end
end

keep_time()
set_slot(source, slot + interval)
save_slots()
if distance then
  redis.call('SET', turn_key, text(slot + distance), 'PX', text((slot + distance - now) / 1000 + 1000))
end
return {text(now), text(slot), source, string.format('%.17g', rate), '0', 0}
