-- Hands out requests together with their send slots.
--
-- A: worker; want (leases at most); cap (leases one source may hold at this worker while others have work);
--    cap_alone (the same when none has); holding (source -> leases this worker has of it); horizon (us ahead
--    that slots are reserved); spread (us between sources that have waited); min_rate; circuit;
--    refuse_unknown; dead_maxlen; max_deliveries.
-- Reply: {moment, state, outstanding, next due (us, '' if none), id, slot, rate, entry, id, slot, ...}
--    state: {'ok', ''}, {'lapsed', ''} (this worker lost its leases), or why leasing is paused: {kind, sentence},
--    see pause.lua.
--
-- Fail closed: without a pulse nothing goes out. The fastest tier gets half of what is wanted, the middle
-- one half of the rest, and what is left over rolls on; within a tier the source that has waited longest
-- comes first. Unused time is not saved: a slot is never before now. A source that is halted or held is put
-- where its time comes; one whose circuit is half open gets a few probes.
--
-- A suspect, a request before its last delivery, may be what killed its workers: it is leased alone, so that
-- it takes no other along. Suspects wait in a list of their own; the worker whose turn it is takes no more
-- until it holds nothing, then that one. The caller takes no more while it holds a suspect. One whose source
-- has no slot within a second lets the others pass.

local reply = {moment(), {'ok', ''}, tonumber(redis.call('GET', K.outstanding) or '0'), ''}

if not redis.call('ZSCORE', K.workers, A.worker) then
  reply[2] = {'lapsed', ''}
  return reply
end
local pause = pause_reason()
if pause[1] ~= '' then
  reply[2] = pause
  return reply
end

local leases = K.leases_of .. A.worker

require_type(leases, 'hash')

-- The first write, and one that Redis denies when it is out of memory: then nothing goes out.
keep_time()
reply[1] = moment()
if resume > now then
  reply[4] = text(resume)
  return reply
end

-- Beyond the clock: after a fail-over that has lost the last numbers, none is given a second time.
local sequence = math.max(number(redis.call('GET', K.lease_sequence), 0) or 0, now)

local function give(source, slot, rate, entry)
  local circuit = circuit_of(source)
  sequence = sequence + 1
  redis.call('SET', K.lease_sequence, text(sequence))
  local id = text(sequence) .. '.' .. text(circuit.generation) .. ':' .. source
  if circuit.state == 'half_open' then change(source).probing = circuit.probing + 1 end
  redis.call('HSET', leases, id, entry)
  for _, value in ipairs({id, text(slot), string.format('%.17g', rate), entry}) do reply[#reply + 1] = value end
end

local kept_for_suspect -- the source of the suspect that a worker makes room for: its next slot is that one's
local function is_suspect(line) return is_name(line:match('^(.-)\n') or '') end
local suspect = redis.call('LINDEX', K.suspects, 0)
for _ = 1, 100 do
  if not suspect or is_suspect(suspect) then break end
  bury('entry', redis.call('LPOP', K.suspects), '', 'quarantined request not written by crawlproject', 0)
  suspect = redis.call('LINDEX', K.suspects, 0)
end
if suspect and is_suspect(suspect) then
  local at = suspect:find('\n', 1, true)
  local source = suspect:sub(1, at - 1)
  local lasts = redis.call('PTTL', K.suspect_turn)
  if lasts > 30000 or lasts == -1 then redis.call('DEL', K.suspect_turn) end -- the clock was set back, or not our word
  local rate, slot = effective_rate(source), next_slot(source)
  local interval = interval_of(rate)
  if not interval or slot > now + 1000000 or admitted(source) == 0 then
    -- Nobody waits for it, least of all the worker whose turn it was.
    redis.call('RPUSH', K.suspects, redis.call('LPOP', K.suspects))
    if redis.call('GET', K.suspect_turn) == A.worker then redis.call('DEL', K.suspect_turn) end
  else
    redis.call('SET', K.suspect_turn, A.worker, 'NX')
    if redis.call('GET', K.suspect_turn) == A.worker then
      redis.call('PEXPIRE', K.suspect_turn, 30000)
      reply[4] = text(slot)
      if next(A.holding) == nil and slot <= now + A.horizon then
        redis.call('LREM', K.suspects, 1, suspect)
        redis.call('SET', K.suspect_turn, '', 'PX', 1000) -- the next one's turn comes after other work
        redis.call('ZADD', K.slots, text(slot + interval), source)
        give(source, slot, rate, suspect:sub(at + 1))
      end
      save_circuits()
      return reply
    end
    if redis.call('GET', K.suspect_turn) ~= '' then kept_for_suspect = source end
  end
end

local tiers = {K.due_fast, K.due_mid, K.due_slow}
local with_work = 0
for _, tier in ipairs(tiers) do
  with_work = with_work + redis.call('ZCOUNT', tier, '-inf', text(now + A.horizon))
end
local cap = with_work > 1 and A.cap or A.cap_alone
local holding, found_suspect = A.holding, false

-- Sources that have waited are all free now. Starting them all now would keep a worker from starting those on
-- time whose moment it is, so they get their slots one after the other, and keep that distance.
local behind = 0
local function spread(slot)
  if slot > now then return slot end
  behind = behind + 1
  return now + (behind - 1) * A.spread
end

-- Work of a source that has left the catalogue, where unknown ones are refused, or whose name is none: a hundred a call.
local function refuse(source, reason)
  local entry, count = take(source), 0
  while entry do
    bury('entry', entry, source, reason, entry:byte(2) or 0)
    count = count + 1
    entry = count < 100 and take(source) or nil
  end
  redis.call('DECRBY', K.outstanding, count)
  schedule(source)
  return 0
end

local function grant(source, budget)
  if source == kept_for_suspect then return 0 end
  if not is_name(source) then return refuse(source, 'invalid source name') end
  if refused(source) then return refuse(source, 'unknown source: ' .. source) end
  local rate = effective_rate(source)
  local interval = interval_of(rate)
  local room = math.min(budget, cap - (holding[source] or 0), admitted(source))
  if room <= 0 then
    if held_until(source) > 0 or circuit_of(source).state == 'half_open' then schedule(source) end
    return 0
  end
  local slot, given = spread(next_slot(source)), 0
  while interval and given < room and slot <= now + A.horizon do
    local entry = take(source)
    if not entry then break end
    if (entry:byte(2) or 0) >= math.max(A.max_deliveries - 1, 1) then
      redis.call('RPUSH', K.suspects, source .. '\n' .. entry)
      found_suspect = true
    else
      give(source, slot, rate, entry)
      given, slot = given + 1, slot + interval
    end
  end
  if given > 0 then
    redis.call('ZADD', K.slots, text(slot), source)
    holding[source] = (holding[source] or 0) + given
  end
  schedule(source)
  return given
end

local function serve(tier, budget)
  if budget <= 0 then return 0 end
  local given = 0
  -- A few more than the budget: sources at their cap stay at the head and must not hide the others.
  local due = redis.call('ZRANGEBYSCORE', tier, '-inf', text(now + A.horizon), 'LIMIT', 0, budget + 8)
  for _, source in ipairs(due) do
    if given >= budget then break end
    given = given + grant(source, budget - given)
  end
  return given
end

local left = A.want
for _, share in ipairs({{1, 2}, {2, 2}, {3, 1}, {1, 1}, {2, 1}}) do
  left = left - serve(tiers[share[1]], math.ceil(left / share[2]))
end

for _, tier in ipairs(tiers) do
  local first = number(redis.call('ZRANGE', tier, 0, 0, 'WITHSCORES')[2])
  if first and (reply[4] == '' or first < tonumber(reply[4])) then reply[4] = text(first) end
end
if found_suspect then reply[4] = text(now) end
save_circuits()
return reply
