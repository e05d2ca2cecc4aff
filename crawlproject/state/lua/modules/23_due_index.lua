-- When each source may send: its slots, a spider's own delay, the spider that slots are left to, and where it is due.

-- Send slots: the next free one of each source.
--
local slots = {}

local LAST = 'last ' -- stands before a source for its last slot that was given out: names have no spaces

-- source -> the next free slot as it was last set, or false
reads('slots', function(ctx, sources) return scores_in(ctx.K.slots, sources) end)

-- What is to be written
function state.changed_slots() return {} end

function slots.set(ctx, source, slot)
  ctx.slots[source] = slot
  ctx.changed_slots[source] = slot
end

-- Notes that a slot has been given out, and which is free by now.
function slots.give(ctx, source, slot, free)
  ctx.changed_slots[LAST .. source] = slot
  slots.set(ctx, source, free)
end

-- Counts the next free slot anew, from the last one that was given out; where that is not known any more it is past.
function slots.recount(ctx, source, interval)
  if not ctx.slots[source] then return end
  local last = ctx.changed_slots[LAST .. source] or tonumber(redis.call('ZSCORE', ctx.K.slots, LAST .. source)) or ctx.now
  slots.set(ctx, source, last + interval)
end

at_end('changed_slots', function(ctx) write_scores(ctx.K.slots, ctx.changed_slots) end)

-- The next slot that can be given out.
function slots.next(ctx, source) return math.max(ctx.slots[source] or 0, ctx.now) end

-- Pace: the delay that a spider keeps between its own requests to one source, beside that source's rate.
--
-- A: pace (us between them; 0: no delay).
--
-- It binds this spider's leases alone, neither other spiders nor requests without a lease (robots.txt). With no delay nothing is read.
local pace = {}

-- What is to be written
function state.changed_paces() return {} end

-- source -> when this spider may send to it (us); it may be past
reads('paces', function(ctx, sources)
  local found, latest = ctx.A.pace > 0 and scores_in(ctx.K.paced, sources) or {}, ctx.now + ctx.A.pace
  for index, source in ipairs(sources) do
    found[index] = found[index] or 0
    -- The delay has been shortened; a slot is given out at most 0.7 s ahead (RENEWAL_S in politeness/slots.py).
    if found[index] > latest + 700000 then found[index], ctx.changed_paces[source] = latest, latest end
  end
  return found
end)

function pace.set(ctx, source, at) ctx.paces[source], ctx.changed_paces[source] = at, at end

-- The request that had this slot was not sent: it costs the source's next one no delay.
function pace.undo(ctx, source, slot)
  if ctx.A.pace > 0 and math.abs(ctx.paces[source] - slot - ctx.A.pace) < 2 then pace.set(ctx, source, slot) end
end

-- Writes what has changed, and forgets what is past, a few more than were written. The key expires
-- when nothing has been written for longer than the delay.
at_end('changed_paces', function(ctx)
  local count = write_scores(ctx.K.paced, ctx.changed_paces)
  write_all('ZREM', ctx.K.paced, redis.call('ZRANGEBYSCORE', ctx.K.paced, '-inf', text(ctx.now), 'LIMIT', 0, count + 100))
  redis.call('PEXPIRE', ctx.K.paced, text(ctx.A.pace / 1000 + 60000))
end)

-- Waits: which spider a source's next slots are left to, where several have work for it.
--
-- A: horizon (us ahead that slots are reserved).
--
-- Slots are taken as they come, so a spider with many workers finds nearly all of them first. A spider that finds fewer than
-- others have taken since it last came notes that it waits, if no other does. Others then reserve slots of that source only
-- shortly before their moment, until it has had some: it comes again within 400 ms or so, and takes what is free by then.
-- Where it does not come, its note holds until a horizon after the slot that it waits for.
local waits = {}

local LEFT_TO_IT = 0.8 -- part of the horizon

-- source -> the spider that waits, or false
reads('waiting', function(ctx, sources)
  local found = read_all('HMGET', ctx.K.waiting_spiders, sources)
  for index, line in ipairs(found) do
    local ends, spider = (line or ''):match('^(%d+) (.*)$')
    found[index] = spider and tonumber(ends) > ctx.now and spider or false
  end
  return found
end)

-- What is to be written: notes, and the sources that lose theirs
function state.waits() return {changed = {}, ended = {}} end

-- How far ahead this spider may reserve slots of a source (us).
function waits.horizon_at(ctx, source)
  local known = ctx.waiting[source]
  return known and known ~= ctx.spider and ctx.A.horizon * (1 - LEFT_TO_IT) or ctx.A.horizon
end

-- Notes that this spider, which has more work for a source, was given slots for `had` us, and others for `others_had` us since
-- it last came.
function waits.note(ctx, source, had, others_had)
  local known, slot, last = ctx.waiting[source], slots.next(ctx, source), ctx.now + ctx.A.horizon
  if known and known ~= ctx.spider then return end
  if others_had > had and slot > last and ctx.paces[source] <= last then
    local changed = ctx.waits.changed
    changed[#changed + 1], changed[#changed + 2] = source, text(slot + ctx.A.horizon) .. ' ' .. ctx.spider
  elseif known and had > 0 then
    ctx.waits.ended[#ctx.waits.ended + 1] = source
  end
end

at_end('waits', function(ctx)
  write_all('HDEL', ctx.K.waiting_spiders, ctx.waits.ended)
  if #ctx.waits.changed == 0 then return end
  write_all('HSET', ctx.K.waiting_spiders, ctx.waits.changed)
  redis.call('PEXPIRE', ctx.K.waiting_spiders, 3600000)
end)

-- How fast a source is crawled, and when it is due.
--
-- A source with work stands in one due set, by the moment its next request is due: that of its tier (2: 10 requests a second and
-- more, 1: 1 and more, 0: less) and its class (the best priority that it has queued). Its `place` is these two digits. Several classes
-- of a tier share what goes out by how long their sources wait: see lease.lua. One that stands may have
-- nothing but delayed requests, or none of its class: a lease call finds that out when its turn comes.
--
-- One that stands in another set, too, leaves that when a lease call reads it.
local due_index = {}

local PLACES, RANK_IN = {}, {} -- of a place the rank of its class
for rank = 1, 5 do -- most requests are of 1 and 2
  for tier = 2, 0, -1 do
    local place = tier .. (rank - 1)
    PLACES[#PLACES + 1], RANK_IN[place] = place, rank
  end
end

-- All due sets.
function state.due_sets(ctx)
  local sets = {}
  for index, place in ipairs(PLACES) do sets[index] = ctx.K.due_of .. place end
  return sets
end
-- source -> {place, at}: where it stands, or false. It is looked for in all sets: a change of its rate may have left it in one that
-- this spider has not heard of.
reads('standing', function(ctx, sources)
  local found, left = {}, {}
  for index = 1, #sources do found[index], left[index] = false, index end
  for _, place in ipairs(PLACES) do
    if #left == 0 then break end
    local names, others = {}, {}
    for number, index in ipairs(left) do names[number] = sources[index] end
    for number, at in ipairs(scores_in(ctx.K.due_of .. place, names)) do
      if at then found[left[number]] = {place = place, at = at} else others[#others + 1] = left[number] end
    end
    left = others
  end
  return found
end)

-- Sources that are to be put where they should stand, at the end of the call.
function state.touched() return {} end
-- What is to be written: source -> where it is to stand; place -> the sources that leave it
function state.moves() return {} end
function state.departures() return {} end

-- The highest rank that a source may have requests queued at, by where it stands.
function due_index.rank_of(ctx, source)
  local stands = ctx.standing[source]
  return stands and RANK_IN[stands.place] or nil
end

-- Reads what decides when several sources are due.
function due_index.look_up(ctx, sources)
  for _, field in ipairs({'limits', 'slots', 'halted', 'circuits', 'robots_delays', 'paces'}) do look_up(ctx, field, sources) end
end

-- The rate at which a source is crawled: its limit, lowered by its circuit, and never above its robots.txt's, unless an
-- operator has lifted that.
function due_index.effective_rate(ctx, source)
  local rate = rates.of(ctx, source) * circuits.factor_of(ctx, ctx.circuits[source])
  if rates.is_over_robots(ctx, source) then return rate end
  return math.min(rate, 1 / ctx.robots_delays[source]) -- 1 / 0 is above any rate
end

-- The moment before which nothing goes out, whatever its slots; 0 when there is none.
function due_index.held_until(ctx, source)
  local circuit = ctx.circuits[source]
  if ctx.halted[source] then return ctx.now + 1000000 end
  if circuit.state == 'open' and circuit.ends > ctx.now then return math.max(circuit.ends, circuit.hold) end
  return circuit.hold > ctx.now and circuit.hold or 0
end

-- Has a source leave a due set when all is written.
function due_index.depart(ctx, source, place)
  local sources = ctx.departures[place] or {}
  ctx.departures[place], sources[#sources + 1] = sources, source
end

-- Puts a source where its next request is due, or nowhere when it has no work.
function due_index.schedule(ctx, source)
  local stands = ctx.standing[source]
  local at, class = queues.has_work_at(ctx, source, due_index.rank_of(ctx, source))
  local rate = rates.of(ctx, source)
  local place = at and (rate >= 10 and 2 or rate >= 1 and 1 or 0) .. class
  if stands and stands.place ~= place then due_index.depart(ctx, source, stands.place) end
  if not at then
    ctx.standing[source], ctx.moves[source] = false, nil
    return
  end
  if rate <= 0 then
    at = ctx.now + 1000000
  else
    at = math.max(at, ctx.slots[source] or 0, due_index.held_until(ctx, source), ctx.paces[source])
    -- All probes are out: whoever waits for them must not stand in the way of others.
    local is_probed = ctx.circuits[source].state == 'half_open'
    if is_probed and circuits.probes_left(ctx, source) == 0 then at = math.max(at, ctx.now + 250000) end
    -- One that is due already keeps its turn: new work does not send it to the end of the queue.
    if stands and stands.at <= at and at <= ctx.now then at = stands.at end
  end
  if stands and stands.place == place and stands.at == at then return end
  ctx.standing[source] = {place = place, at = at}
  ctx.moves[source] = ctx.standing[source]
end

-- Has `change` change what the effective rate of a source depends on. The slot after the last one used is counted anew: a
-- source raised from 0.2 rps does not first wait its five seconds, and one that is lowered gives no slot early. Returns
-- whether the source is visited less often than before.
function due_index.move_slot(ctx, source, change)
  local before = rates.interval_of(due_index.effective_rate(ctx, source))
  change()
  local after = rates.interval_of(due_index.effective_rate(ctx, source))
  if before and after then slots.recount(ctx, source, after) end
  return before and after and after > before
end

-- Closes the circuit of a source that an operator has taken out of those halted: at once, and at its full rate.
function due_index.resume(ctx, source, kind)
  circuits.close(ctx, source, kind, 'an operator resumed it', true)
  local interval = rates.interval_of(due_index.effective_rate(ctx, source))
  if interval then slots.recount(ctx, source, interval) end
end

function due_index.change_rate(ctx, source, written)
  due_index.move_slot(ctx, source, function()
    redis.call('HSET', ctx.K.rates, source, written)
    ctx.limits[source] = rates.parsed(ctx, written)
  end)
end

-- Puts operators' rates for `sources` in force; the leader, which looks at all sources in turn, comes later to most.
-- When one is gone it is the leader that notices.
function due_index.follow_overrides(ctx, sources)
  look_up(ctx, 'overrides', sources)
  for _, source in ipairs(sources) do
    local limit = ctx.overrides[source] and rates.override_of(ctx.overrides[source])
    if limit and limit ~= rates.limit_of(ctx, source) then
      due_index.change_rate(ctx, source, limit)
      audit.note_override(ctx, source, rates.of(ctx, source), 'override', rates.is_over_robots(ctx, source))
    end
  end
end

-- Writes where sources stand. Returns the places that some have come to or were moved in.
function due_index.save(ctx)
  local of_places = {}
  for source, stands in pairs(ctx.moves) do
    local values = of_places[stands.place] or {}
    of_places[stands.place], values[#values + 1], values[#values + 2] = values, text(stands.at), source
  end
  for place, sources in pairs(ctx.departures) do write_all('ZREM', ctx.K.due_of .. place, sources) end
  for place, values in pairs(of_places) do write_all('ZADD', ctx.K.due_of .. place, values) end
  ctx.moves, ctx.departures = {}, {}
  return of_places
end

at_end('touched', function(ctx)
  local sources = {}
  for source in pairs(ctx.touched) do sources[#sources + 1] = source end
  look_up(ctx, 'standing', sources)
  for _, source in ipairs(sources) do due_index.schedule(ctx, source) end
end)
at_end('moves', due_index.save)

-- Puts sources with work where they should be: they may stand nowhere, below their class, or far ahead, as this spider hears nothing of
-- it when a change of rate, or a resumption, has brought another's forward. Returns how many of the first two there were.
function due_index.mend(ctx, sources)
  local count = 0
  due_index.look_up(ctx, sources)
  look_up(ctx, 'standing', sources)
  for _, source in ipairs(sources) do
    local rank = due_index.rank_of(ctx, source) or 0
    queues.look_anew(ctx, source)
    due_index.schedule(ctx, source)
    if (due_index.rank_of(ctx, source) or 0) > rank then count = count + 1 end
  end
  return count
end
