-- Third prelude of every script: how fast a source is asked, and where it stands in the due sets.

-- The rate at which a source is asked: its limit, less what trouble takes, and never above its robots.txt's.
local function effective_rate(source)
  local rate = rate_of(source) * factor_of(circuit_of(source))
  local longest = attempt('ZRANGE', K.robots_delays_of .. source, -1, -1, 'WITHSCORES')
  if not longest then return 0 end -- no telling what it asks for
  local delay = math.min(tonumber(longest[2] or '') or 0, 86400)
  return delay > 0 and math.min(rate, 1 / delay) or rate
end

-- The moment before which nothing goes out, whatever its slots; 0 when there is none.
local function held_until(source)
  local circuit = circuit_of(source)
  if redis.call('SISMEMBER', K.halted, source) == 1 then return now + 1000000 end
  if circuit.state == 'open' and circuit.ends > now then return math.max(circuit.ends, circuit.hold) end
  return circuit.hold > now and circuit.hold or 0
end

-- How many requests the circuit lets out now; a period that is over gives way to probes, and an operator who has
-- taken a source out of the halted set is heeded at once.
local function admitted(source)
  if held_until(source) > 0 then return 0 end
  local circuit = circuit_of(source)
  if circuit.state == 'halted' then close_circuit(source, 'permanent', 'an operator resumed it', true) end
  if circuit.state == 'open' then let_probes_out(source) end
  if circuit.state ~= 'half_open' then return math.huge end
  return math.max(rules_of(source).probes - circuit.probing - circuit.passed, 0)
end

local function next_slot(source)
  return math.max(number(redis.call('ZSCORE', K.slots, source)) or 0, now)
end

-- Puts a source where its next request is due, or nowhere when it has no work.
local function schedule(source)
  local rate = rate_of(source)
  local tier = rate >= 10 and K.due_fast or rate >= 1 and K.due_mid or K.due_slow
  for _, other in ipairs({K.due_fast, K.due_mid, K.due_slow}) do
    if other ~= tier then redis.call('ZREM', other, source) end
  end
  local at
  if redis.call('EXISTS', unpack(queues_of(source))) > 0 then
    at = now
  else
    local first = attempt('ZRANGE', K.delayed_of .. source, 0, 0, 'WITHSCORES') or {}
    at = tonumber(first[2] or '')
  end
  if not at then
    redis.call('ZREM', tier, source)
  elseif rate <= 0 then
    redis.call('ZADD', tier, text(now + 1000000), source)
  else
    at = math.max(at, next_slot(source), held_until(source))
    -- All probes are out: whoever waits for them must not stand in the way of others.
    if circuit_of(source).state == 'half_open' and admitted(source) == 0 then at = math.max(at, now + 250000) end
    -- One that is due already keeps its place in the row: new work does not send it to the end.
    local stands = tonumber(redis.call('ZSCORE', tier, source) or '')
    if not stands or stands > at or at > now then redis.call('ZADD', tier, text(at), source) end
  end
end

local function schedule_all(sources)
  for source in pairs(sources) do schedule(source) end
end

-- Hosts whose delay counts no more: nobody has looked at their robots.txt for ten minutes and that delay. Whoever asks
-- them again looks first (a worker remembers it for 90 s), and the delay counts again before the request goes out.
local UNASKED = 600000000
local function unasked(source)
  local found = {}
  local longest = redis.call('ZRANGE', K.robots_delays_of .. source, -10, -1, 'WITHSCORES')
  for index = 1, #longest, 2 do
    local asked = attempt('HGET', K.robots_of .. longest[index], 'asked')
    local delay = math.min(tonumber(longest[index + 1]) or 0, 86400) * 1000000
    if (number(asked or '', 0) or 0) < now - UNASKED - delay then found[#found + 1] = longest[index] end
  end
  return found
end

-- Notes what an origin's robots.txt asks of a source; the slot after the last one used is counted anew. Returns 1
-- when the source is asked less often than before, else 0.
local function ask_for_delay(source, origin, delay)
  local key = K.robots_delays_of .. source
  require_type(key, 'zset')
  redis.call('PEXPIRE', key, 2 * 86400 * 1000)
  local others = unasked(source)
  if (tonumber(redis.call('ZSCORE', key, origin) or '') or 0) == delay and #others == 0 then return 0 end
  local slot, before = number(redis.call('ZSCORE', K.slots, source)), interval_of(effective_rate(source))
  for _, other in ipairs(others) do redis.call('ZREM', key, other) end
  if delay > 0 then
    redis.call('ZADD', key, string.format('%.17g', delay), origin)
  else
    redis.call('ZREM', key, origin)
  end
  local after = interval_of(effective_rate(source))
  if slot and before and after then redis.call('ZADD', K.slots, text(slot - before + after), source) end
  schedule(source)
  return before and after and after > before and 1 or 0
end
