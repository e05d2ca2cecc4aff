-- Reserves the next send slot of a source for a request that has no lease (robots.txt, scrapy shell).
--
-- A: source, or domain, or both (see belonging); host (of the request); sent_by
--    (the source whose robots.txt leads there; none: the source's own request); horizon (us ahead that a slot is reserved at
--    most); share (of the source's slots that others' robots.txt may take while it has work); min_rate; circuit.
-- Reply: {moment, slot, source, rate, wait, 1 if source or host is excluded, 2 if the source is in another shard}; where slot is
-- '' there is none to be had now: ask again after `wait` (us).
--
-- The horizon is longer than that of leases: a robots.txt goes before the images that wait for it. Nothing is
-- reserved beyond it. Who comes too early keeps nobody's place, and asks again when the slot is within the horizon.
--
-- Two kinds of requests keep a distance to the last of their kind besides: those for others' robots.txt, to a
-- source that has work of its own; and all to a source whose circuit is not closed, which they say nothing about:
-- as many as it has probes in each open period.
register('acquire', function(ctx, K, A)
  local UNKNOWN_US = 2000000 -- when nobody can say: no pulse, halted, a rate of 0

  local source = belonging.source_of(ctx, A.source, A.domain)
  local function none(wait, why) return {text(ctx.now), '', source, '0', text(wait), why} end

  if exclusions.has(ctx, source) or exclusions.has_host(ctx, A.host) then return none(UNKNOWN_US, 1) end
  if shards.is_elsewhere(ctx, source) then return none(0, 2) end
  due_index.look_up(ctx, {source})
  rates.register(ctx, source)
  local rate, held, circuit = due_index.effective_rate(ctx, source), due_index.held_until(ctx, source), ctx.circuits[source]
  local interval = rates.interval_of(rate)

  local function none_before(at) return none(math.max(at - ctx.now, 1000), 0) end

  local is_stopped = redis.call('EXISTS', K.pulse) == 0 or not interval or ctx.halted[source]
  if is_stopped then return none_before(ctx.now + UNKNOWN_US) end
  if ctx.resume > ctx.now or held > 0 then return none_before(math.max(ctx.resume, held)) end
  local slot = slots.next(ctx, source)
  if slot > ctx.now + A.horizon then return none_before(slot - A.horizon) end

  local distance
  if circuit.state ~= 'closed' then
    local rules = ctx.rules_of[source]
    distance = rules.open / math.max(math.ceil(rules.probes), 1)
  elseif A.sent_by and A.sent_by ~= source and (queues.has_work_at(ctx, source) or math.huge) <= slot then
    distance = interval / A.share
  end
  local kind = 'kept apart ' .. source -- stands beside the slots of sources: their names have no spaces
  if distance then
    local turn = ctx.slots[kind] or 0
    if turn > slot and turn <= slot + distance then return none_before(turn - A.horizon) end
  end

  clock.keep(ctx)
  slots.give(ctx, source, slot, slot + interval)
  if distance then slots.set(ctx, kind, slot + distance) end
  return {text(ctx.now), text(slot), source, string.format('%.17g', rate), '0', 0}
end)
