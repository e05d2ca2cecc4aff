-- How fast a source is crawled, and where it stands in the due sets.
-- needs: rates, slots, pace, queues, circuit, asked_delay, audit
-- types: zset due_fast due_mid due_slow
--
-- What is read of a source is kept for the rest of the script. Where sources stand is written once, at its end, by
-- save_due() or schedule_all().

local TIERS = {K.due_fast, K.due_mid, K.due_slow}
local places = {} -- source -> its score in its tier, or false
local moves = {[K.due_fast] = {}, [K.due_mid] = {}, [K.due_slow] = {}} -- what is to be written

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

local function tier_of(source)
  local rate = rate_of(source)
  return rate >= 10 and K.due_fast or rate >= 1 and K.due_mid or K.due_slow
end

-- Puts a source where its next request is due, or nowhere when it has no work.
local function schedule(source)
  local tier, at = tier_of(source), has_work_at(source)
  local stands = places[source]
  if stands == nil then stands = tonumber(redis.call('ZSCORE', tier, source) or '') or false end
  if not stands then -- then it may stand where another rate had put it
    for _, other in ipairs(TIERS) do
      if other ~= tier then redis.call('ZREM', other, source) end
    end
  end
  if not at then
    if stands then redis.call('ZREM', tier, source) end
    places[source], moves[tier][source] = false, nil
    return
  elseif rate_of(source) <= 0 then
    at = now + 1000000
  else
    at = math.max(at, next_slot(source), held_until(source), paced_until(source))
    -- All probes are out: whoever waits for them must not stand in the way of others.
    if circuit_of(source).state == 'half_open' and probes_left(source) == 0 then at = math.max(at, now + 250000) end
    -- One that is due already keeps its place: new work does not send it to the end of the queue.
    if stands and stands <= at and at <= now then return end
  end
  places[source], moves[tier][source] = at, at
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
  local keys = {}
  for index, source in ipairs(sources) do keys[index] = K.override_rate_of .. source end
  for index, value in ipairs(#keys > 0 and redis.call('MGET', unpack(keys)) or {}) do
    local source, limit = sources[index], override_of(value)
    if limit and limit ~= limit_of(source) then
      change_rate(source, limit)
      note_override(source, rate_of(source), 'override', is_over_robots(source))
    end
  end
end

-- Writes where sources stand, and their slots.
local function save_due()
  save_slots()
  save_paces()
  for _, tier in ipairs(TIERS) do
    local values = {}
    for source, at in pairs(moves[tier]) do values[#values + 1], values[#values + 2] = text(at), source end
    for first = 1, #values, 2000 do redis.call('ZADD', tier, unpack(values, first, math.min(first + 1999, #values))) end
  end
end

local function schedule_all(sources)
  for source in pairs(sources) do schedule(source) end
  save_due()
end
