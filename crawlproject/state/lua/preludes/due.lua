-- How fast a source is crawled, and where it stands in the due sets.
-- needs: rates, slots, pace, queues, circuit, asked_delay, audit
-- types: hash places
-- few: zset due_20 due_10 due_00 due_21 due_11 due_01 due_22 due_12 due_02 due_23 due_13 due_03 due_24 due_14 due_04
--
-- What is read of a source is kept for the rest of the script. Where sources stand is written once, at its end, by
-- save_due() or schedule_all().

-- A source with work stands in one due set: by its rate, and by the best class (priority) of what it has queued. K.places
-- says in which. Several classes of a tier share what goes out by how long their sources wait: see lease.lua.

local DUE = {
  ['24'] = K.due_24, ['23'] = K.due_23, ['22'] = K.due_22, ['21'] = K.due_21, ['20'] = K.due_20,
  ['14'] = K.due_14, ['13'] = K.due_13, ['12'] = K.due_12, ['11'] = K.due_11, ['10'] = K.due_10,
  ['04'] = K.due_04, ['03'] = K.due_03, ['02'] = K.due_02, ['01'] = K.due_01, ['00'] = K.due_00,
}
local places, due_at = {}, {} -- source -> the due set that it stands in, or false; its score there, where that is known
-- What is to be written: source -> its new score; false: it has no work; due set -> the sources that leave it
local moves, departures = {}, {}
local noted = {} -- source -> what K.places says of it

local function note_place(source, place)
  noted[source] = place
  places[source] = DUE[place or ''] and place or false
end

-- Where a source stands, as this script has left it.
local function place_of(source)
  if places[source] == nil then note_place(source, redis.call('HGET', K.places, source)) end
  return places[source]
end

-- The best class that a source may have queued; nil: any. What others have put into a due set may have any.
local function class_of(source)
  return DUE[noted[source] or ''] and places[source] and tonumber(places[source]:sub(2)) or nil
end

-- Reads of several sources at once: rates, slots, who is halted; circuits and delays where there are none.
local function look_up(sources)
  for first = 1, #sources, 1000 do
    local last = math.min(first + 999, #sources)
    local found = read('hash', 'HMGET', K.rates, unpack(sources, first, last))
    local scores = read('zset', 'ZMSCORE', K.slots, unpack(sources, first, last))
    for index = 1, last - first + 1 do
      local source = sources[first + index - 1]
      note_rate(source, found[index])
      slots[source] = number(scores[index]) or false
    end
  end
  look_up_halted(sources)
  look_up_circuits(sources)
  look_up_robots_delays(sources)
  look_up_paces(sources)
end

-- The rate at which a source is crawled: its limit, lowered by its circuit, and never above its robots.txt's, unless an
-- operator has lifted that.
local function effective_rate(source)
  local rate, longest = rate_of(source) * factor_of(circuit_of(source)), binding_delay_of(source)
  if not longest then return 0 end
  return longest > 0 and math.min(rate, 1 / longest) or rate
end

-- The moment before which nothing goes out, whatever its slots; 0 when there is none.
local function held_until(source)
  local circuit = circuit_of(source)
  if is_halted(source) then return now + 1000000 end
  if circuit.state == 'open' and circuit.ends > now then return math.max(circuit.ends, circuit.hold) end
  return circuit.hold > now and circuit.hold or 0
end

-- 2 for sources of 10 requests a second and more, 1 for those of 1 and more, 0 for slower ones.
local function tier_of(source)
  local rate = rate_of(source)
  return rate >= 10 and 2 or rate >= 1 and 1 or 0
end

-- Has a source leave a due set when all is written.
local function depart(source, place)
  local sources = departures[place]
  if not sources then
    sources = {}
    departures[place] = sources
  end
  sources[#sources + 1] = source
end

-- Takes a source out of the set that it stands in.
local function leave_place(source)
  local place = places[source]
  if not place then return end
  depart(source, place)
  places[source], due_at[source] = false, nil
end

-- Puts a source where its next request is due, or nowhere when it has no work.
local function schedule(source)
  local place = place_of(source)
  local at, class = has_work_at(source, place and tonumber(place:sub(2)))
  if not at then
    leave_place(source)
    if place then moves[source] = false end
    return
  end
  local wanted = tier_of(source) .. class
  if place and due_at[source] == nil then due_at[source] = tonumber(redis.call('ZSCORE', DUE[place], source) or '') end
  local stands = due_at[source]
  if rate_of(source) <= 0 then
    at = now + 1000000
  else
    at = math.max(at, next_slot(source), held_until(source), paced_until(source))
    -- All probes are out: whoever waits for them must not stand in the way of others.
    if circuit_of(source).state == 'half_open' and probes_left(source) == 0 then at = math.max(at, now + 250000) end
    -- One that is due already keeps its place: new work does not send it to the end of the queue.
    if stands and stands <= at and at <= now then at = stands end
  end
  if place ~= wanted then
    leave_place(source)
    places[source] = wanted
  elseif at == stands and moves[source] == nil then
    return
  end
  due_at[source], moves[source] = at, at
end

-- Changes the rate of a source. The slot after the last one used is counted anew: a source raised from 0.2 rps does
-- not first wait its five seconds, and one that is lowered gives no slot early.
local function change_rate(source, written)
  local slot, before = slot_of(source), interval_of(effective_rate(source))
  redis.call('HSET', K.rates, source, written)
  note_rate(source, written)
  local after = interval_of(effective_rate(source))
  if slot and before and after then set_slot(source, slot - before + after) end
end

-- Puts operators' rates for `sources` in force; the leader, which looks at all sources in turn, comes later to most.
-- When one is gone it is the leader that notices.
local function follow_overrides(sources)
  look_up_overrides(sources)
  for _, source in ipairs(sources) do
    local limit = overrides[source] and override_of(overrides[source])
    if limit and limit ~= limit_of(source) then
      change_rate(source, limit)
      note_override(source, rate_of(source), 'override', is_over_robots(source))
    end
  end
end

-- A command on a key with any number of values, which come in pairs where it takes pairs.
local function write_all(command, key, values)
  for first = 1, #values, 2000 do redis.call(command, key, unpack(values, first, math.min(first + 1999, #values))) end
end

-- Writes where sources stand, and their slots. Returns the due sets that some have come to or were moved in.
local function save_due()
  save_slots()
  save_paces()
  local sets, changed_places, gone = {}, {}, {}
  for source, at in pairs(moves) do
    local place = places[source]
    if place then
      local values = sets[place]
      if not values then
        values = {}
        sets[place] = values
      end
      values[#values + 1], values[#values + 2] = text(at), source
      if noted[source] ~= place then
        changed_places[#changed_places + 1], changed_places[#changed_places + 2] = source, place
        noted[source] = place
      end
    else
      gone[#gone + 1], noted[source] = source, nil
    end
  end
  for place, sources in pairs(departures) do write_all('ZREM', DUE[place], sources) end
  for place, values in pairs(sets) do write_all('ZADD', DUE[place], values) end
  write_all('HSET', K.places, changed_places)
  write_all('HDEL', K.places, gone)
  moves, departures = {}, {}
  return sets
end

local function schedule_all(sources)
  for source in pairs(sources) do schedule(source) end
  save_due()
end
