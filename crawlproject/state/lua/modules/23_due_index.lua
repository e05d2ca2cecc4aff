-- How fast a source is crawled, and where it stands in the due sets.
--
-- What is read of a source is kept for the rest of the call. Where sources stand is written once, at its end, by
-- due_index.save() or schedule_all().
local due_index = {}

-- A source with work stands in one due set: by its rate, and by the best class (priority) of what it has queued. K.places
-- says in which. Several classes of a tier share what goes out by how long their sources wait: see lease.lua.

local PLACES = {'24', '23', '22', '21', '20', '14', '13', '12', '11', '10', '04', '03', '02', '01', '00'}

function state.DUE(ctx)
  local due, prefix = {}, ctx.tag .. ':' .. ctx.spider .. ':due:'
  for _, place in ipairs(PLACES) do due[place] = prefix .. place end
  return due
end

-- All due sets, that of the fastest sources and of the best class first.
function state.due_sets(ctx)
  local sets = {}
  for tier = 2, 0, -1 do
    for class = 4, 0, -1 do sets[#sets + 1] = ctx.DUE[tier .. class] end
  end
  return sets
end

-- source -> the due set that it stands in, or false; its score there, where that is known
function state.places() return {} end
function state.due_at() return {} end
-- What is to be written: source -> its new score; false: it has no work; due set -> the sources that leave it
function state.moves() return {} end
function state.departures() return {} end
-- source -> what K.places says of it
function state.noted() return {} end

function due_index.note_place(ctx, source, place)
  ctx.noted[source] = place
  ctx.places[source] = ctx.DUE[place or ''] and place or false
end

-- Where a source stands, as this call has left it.
function due_index.place_of(ctx, source)
  if ctx.places[source] == nil then due_index.note_place(ctx, source, redis.call('HGET', ctx.K.places, source)) end
  return ctx.places[source]
end

-- The best class that a source may have queued; nil: any.
function due_index.class_of(ctx, source)
  return ctx.DUE[ctx.noted[source] or ''] and ctx.places[source] and tonumber(ctx.places[source]:sub(2)) or nil
end

-- Reads of several sources at once: rates, slots, who is halted; circuits and delays where there are none.
function due_index.look_up(ctx, sources)
  local limits, scores = read_all('HMGET', ctx.K.rates, sources), read_all('ZMSCORE', ctx.K.slots, sources)
  for index, source in ipairs(sources) do
    rates.note(ctx, source, limits[index])
    ctx.slots[source] = tonumber(scores[index]) or false
  end
  circuits.look_up_halted(ctx, sources)
  circuits.look_up(ctx, sources)
  robots.look_up_delays(ctx, sources)
  pace.look_up(ctx, sources)
end

-- The rate at which a source is crawled: its limit, lowered by its circuit, and never above its robots.txt's, unless an
-- operator has lifted that.
function due_index.effective_rate(ctx, source)
  local rate = rates.of(ctx, source) * circuits.factor_of(ctx, circuits.of(ctx, source))
  return math.min(rate, 1 / robots.binding_delay_of(ctx, source)) -- 1 / 0 is above any rate
end

-- The moment before which nothing goes out, whatever its slots; 0 when there is none.
function due_index.held_until(ctx, source)
  local circuit = circuits.of(ctx, source)
  if circuits.is_halted(ctx, source) then return ctx.now + 1000000 end
  if circuit.state == 'open' and circuit.ends > ctx.now then return math.max(circuit.ends, circuit.hold) end
  return circuit.hold > ctx.now and circuit.hold or 0
end

-- 2 for sources of 10 requests a second and more, 1 for those of 1 and more, 0 for slower ones.
function due_index.tier_of(ctx, source)
  local rate = rates.of(ctx, source)
  return rate >= 10 and 2 or rate >= 1 and 1 or 0
end

-- Has a source leave a due set when all is written.
function due_index.depart(ctx, source, place)
  local sources = ctx.departures[place] or {}
  ctx.departures[place], sources[#sources + 1] = sources, source
end

-- Takes a source out of the set that it stands in.
function due_index.leave_place(ctx, source)
  local place = ctx.places[source]
  if not place then return end
  due_index.depart(ctx, source, place)
  ctx.places[source], ctx.due_at[source] = false, nil
end

-- Puts a source where its next request is due, or nowhere when it has no work.
function due_index.schedule(ctx, source)
  local place = due_index.place_of(ctx, source)
  local at, class = queues.has_work_at(ctx, source, place and tonumber(place:sub(2)))
  if not at then
    due_index.leave_place(ctx, source)
    if place then ctx.moves[source] = false end
    return
  end
  local wanted = due_index.tier_of(ctx, source) .. class
  if place and ctx.due_at[source] == nil then ctx.due_at[source] = tonumber(redis.call('ZSCORE', ctx.DUE[place], source)) end
  local stands = ctx.due_at[source]
  if rates.of(ctx, source) <= 0 then
    at = ctx.now + 1000000
  else
    at = math.max(at, slots.next(ctx, source), due_index.held_until(ctx, source), pace.free_at(ctx, source))
    -- All probes are out: whoever waits for them must not stand in the way of others.
    local is_probed = circuits.of(ctx, source).state == 'half_open'
    if is_probed and circuits.probes_left(ctx, source) == 0 then at = math.max(at, ctx.now + 250000) end
    -- One that is due already keeps its place: new work does not send it to the end of the queue.
    if stands and stands <= at and at <= ctx.now then at = stands end
  end
  if place ~= wanted then
    due_index.leave_place(ctx, source)
    ctx.places[source] = wanted
  elseif at == stands and ctx.moves[source] == nil then
    return
  end
  ctx.due_at[source], ctx.moves[source] = at, at
end

-- Has `change` change what the effective rate of a source depends on. The slot after the last one used is counted anew: a
-- source raised from 0.2 rps does not first wait its five seconds, and one that is lowered gives no slot early. Returns
-- whether the source is visited less often than before.
function due_index.move_slot(ctx, source, change)
  local slot, before = slots.free_at(ctx, source), rates.interval_of(due_index.effective_rate(ctx, source))
  change()
  local after = rates.interval_of(due_index.effective_rate(ctx, source))
  if slot and before and after then slots.set(ctx, source, slot - before + after) end
  return before and after and after > before
end

function due_index.change_rate(ctx, source, written)
  due_index.move_slot(ctx, source, function()
    redis.call('HSET', ctx.K.rates, source, written)
    rates.note(ctx, source, written)
  end)
end

-- Puts operators' rates for `sources` in force; the leader, which looks at all sources in turn, comes later to most.
-- When one is gone it is the leader that notices.
function due_index.follow_overrides(ctx, sources)
  rates.look_up_overrides(ctx, sources)
  for _, source in ipairs(sources) do
    local limit = ctx.overrides[source] and rates.override_of(ctx.overrides[source])
    if limit and limit ~= rates.limit_of(ctx, source) then
      due_index.change_rate(ctx, source, limit)
      audit.note_override(ctx, source, rates.of(ctx, source), 'override', rates.is_over_robots(ctx, source))
    end
  end
end

-- Writes where sources stand, and their slots. Returns the due sets that some have come to or were moved in.
function due_index.save(ctx)
  slots.save(ctx)
  pace.save(ctx)
  local sets, changed_places, gone = {}, {}, {}
  for source, at in pairs(ctx.moves) do
    local place = ctx.places[source]
    if place then
      local values = sets[place] or {}
      sets[place], values[#values + 1], values[#values + 2] = values, text(at), source
      if ctx.noted[source] ~= place then
        changed_places[#changed_places + 1], changed_places[#changed_places + 2] = source, place
        ctx.noted[source] = place
      end
    else
      gone[#gone + 1], ctx.noted[source] = source, nil
    end
  end
  for place, sources in pairs(ctx.departures) do write_all('ZREM', ctx.DUE[place], sources) end
  for place, values in pairs(sets) do write_all('ZADD', ctx.DUE[place], values) end
  write_all('HSET', ctx.K.places, changed_places)
  write_all('HDEL', ctx.K.places, gone)
  ctx.moves, ctx.departures = {}, {}
  return sets
end

function due_index.schedule_all(ctx, sources)
  for source in pairs(sources) do due_index.schedule(ctx, source) end
  due_index.save(ctx)
end

-- Puts sources where they should be by what is in their queues, whatever was noted of them; those that stand there keep their
-- turn. Returns how many did not.
function due_index.mend(ctx, sources)
  local count = 0
  due_index.look_up(ctx, sources)
  for _, source in ipairs(sources) do
    local place = due_index.place_of(ctx, source)
    local was = place and redis.call('ZSCORE', ctx.DUE[place], source) and place
    ctx.places[source] = false
    due_index.schedule(ctx, source)
    if ctx.places[source] == (was or false) then
      ctx.moves[source] = nil
    else
      if was then due_index.depart(ctx, source, was) end
      if not ctx.places[source] then ctx.moves[source] = false end
      count = count + 1
    end
  end
  due_index.save(ctx)
  return count
end
