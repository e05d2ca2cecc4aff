-- Hands out requests together with their send slots.
-- needs: clock_guard, belonging, circuit_changes, due, turns, exclusions, pause
-- reads: outstanding pulse paused lease_sequence overflow spilled workers dead quarantine quarantine_turn places
-- reads: due_24 due_23 due_22 due_21 due_20 due_14 due_13 due_12 due_11 due_10 due_04 due_03 due_02 due_01 due_00
-- reads: due_fast due_mid due_slow
-- reads: rates slots halted
--
-- A: worker; want (leases at most); rooms (source -> how many leases it may get); room (how many any other may get);
--    idle (the worker holds no lease); horizon (us ahead that slots are reserved); spread (us between sources that
--    have waited); min_rate; circuit; pace; spider; namespace; refuse_unknown; dead_maxlen; max_deliveries; high_water.
-- Reply: {moment, state, outstanding, next due (us, '' if none), id, slot, rate, entry, id, slot, ...}
--    A lease whose slot is '' is of a request that does not belong to its source (see preludes/belonging.lua): it must not go
--    out, but back to where it belongs, which the caller finds by its domain.
--    state: {'ok', ''}, {'lapsed', ''} (this worker lost its leases), or why leasing is paused: {kind, sentence},
--    see preludes/pause.lua.
--
-- Fail closed: without a pulse nothing goes out. The fastest tier gets half of what is wanted, the middle
-- one half of the rest, and what is left over rolls on; within a tier the source with the greatest wait x weight
-- of its class comes first. Unused time is not saved: a slot is never before now. A spider with a delay of its own (see preludes/pace.lua)
-- gets slots as far apart as that; those between are others'. A source that is halted or held is put
-- where its time comes; one whose circuit is half open gets a few probes.
--
-- Spiders that have work for the same source share its slots: see preludes/turns.lua.
--
-- A request before its last delivery may be what killed its workers. It is quarantined: leased alone, so that it
-- takes no other along. Quarantined requests wait in a list of their own; the worker whose turn it is takes no more
-- until it holds nothing, then that one. The caller takes no more while it holds it. One whose source has no slot
-- within a second lets the others pass.

local outstanding, pulse, unread, sequence, overflow, tails =
  strings(K.outstanding, K.pulse, K.paused, K.lease_sequence, K.overflow, K.spilled)
outstanding, overflow = counter(K.outstanding, outstanding), counter(K.overflow, overflow)
tails = overflow - counter(K.spilled, tails)
if overflow == 0 then setmetatable(has.apart, {__index = function() return false end}) end -- none is to be looked for
local reply = {moment(), {'ok', ''}, outstanding, ''}

-- Beyond the clock: after a fail-over that has lost the last numbers, none is given a second time.
sequence = math.max(counter(K.lease_sequence, sequence), now)

if not read('zset', 'ZSCORE', K.workers, A.worker) then
  reply[2] = {'lapsed', ''}
  return reply
end
local pause = pause_reason(pulse, unread, outstanding, tails)
if pause[1] ~= '' then
  reply[2] = pause
  return reply
end

-- What is due, by tier. Sources that may get no more stay at the head of a tier, and must not hide the others; nor must
-- a few that turn out to be halted or held.
local rooms, full = A.rooms, 0
for _, room in pairs(rooms) do
  if room <= 0 then full = full + 1 end
end

-- The sources of a tier that are due, at most `most` of them, in the order of their turns: the one with the greatest wait x
-- weight of its class first. So no class starves, and of two that are short of slots the higher one waits half as long.
-- The sets are read in chunks. Appends their names to `sources`.
local function read_due(tier, most, sources)
  local to, heads, found = text(now + A.horizon), {}, {names = {}, scores = {}, places = {}}
  -- Comes to the next source of a class; its wait is nil at the end.
  local function advance(head)
    head.at = head.at + 2
    if not head.rows[head.at] and not head.ended then
      head.rows = read('zset', 'ZRANGEBYSCORE', DUE[head.place], '-inf', to, 'WITHSCORES', 'LIMIT', head.read, head.chunk)
      head.at, head.read, head.ended = 1, head.read + head.chunk, #head.rows < 2 * head.chunk
      head.chunk = 2 * head.chunk
    end
    head.source, head.score = head.rows[head.at], tonumber(head.rows[head.at + 1] or '')
    head.wait = head.score and math.max(now + A.horizon - head.score, 0) * head.weight
  end
  for class = 4, 0, -1 do
    local head = {place = tier .. class, weight = 2 ^ class, chunk = 16, read = 0, rows = {}, at = 1}
    advance(head)
    if head.wait then heads[#heads + 1] = head end
  end
  for _ = 1, most do
    local head = heads[1]
    if not head then break end
    local place = 1
    for index = 2, #heads do
      if heads[index].wait > head.wait then head, place = heads[index], index end
    end
    local source = head.source
    if (rooms[source] or 1) > 0 then
      local names = found.names
      local last = #names + 1
      names[last], found.scores[last], found.places[last] = source, head.score, head.place
      sources[#sources + 1] = source
    end
    advance(head)
    if not head.wait then table.remove(heads, place) end
  end
  return found
end

local due, sources, misplaced = {}, {}, {} -- `due`: by tier, the fastest first
for index = 1, 3 do due[index] = read_due(3 - index, A.want + full + 8, sources) end
for first = 1, #sources, 1000 do
  local last = math.min(first + 999, #sources)
  for index, place in ipairs(read('hash', 'HMGET', K.places, unpack(sources, first, last))) do
    note_place(sources[first + index - 1], place)
  end
end
-- What others have put into a due set stands there if it does not stand elsewhere.
for index = 1, 3 do
  local kept = {}
  for position, source in ipairs(due[index].names) do
    local place, score = due[index].places[position], due[index].scores[position]
    if not places[source] then places[source], moves[source] = place, score end
    if places[source] == place then
      kept[#kept + 1], due_at[source] = source, score
    else
      misplaced[#misplaced + 1] = {place, source}
    end
  end
  due[index].names = kept
end
local function source_of_quarantined(line)
  local source = line and line:match('^(.-)\n')
  return source and is_name(source) and source
end
local quarantined = read('list', 'LINDEX', K.quarantine, 0)
if quarantined then
  require_type('string', K.quarantine_turn)
  local source = source_of_quarantined(quarantined)
  if source then sources[#sources + 1] = source end
end
look_up(sources)
look_up_excluded(sources)
look_up_beliefs(sources)
follow_overrides(sources)
look_up_rivals()
for index = 1, 3 do look_up_turns(due[index].names) end
local leases = K.leases_of .. A.worker
require_type('hash', leases)

-- The first write, and one that Redis denies when it is out of memory: then nothing goes out.
keep_time()
reply[1] = moment()
for _, one in ipairs(misplaced) do redis.call('ZREM', DUE[one[1]], one[2]) end
if resume > now then
  reply[4] = text(resume)
  return reply
end

-- Leases `entries` with the slots from `slot` on; returns the slot after the last one.
local function give(source, slot, interval, rate, entries)
  local circuit, stored = circuit_of(source), {}
  local ending, shown_rate = '.' .. text(circuit.generation) .. ':' .. source, string.format('%.17g', rate)
  local step = math.max(interval, A.pace)
  if circuit.state == 'half_open' then change(source).probing = circuit.probing + #entries end
  for _, entry in ipairs(entries) do
    sequence = sequence + 1
    local id, place = text(sequence) .. ending, #reply
    stored[#stored + 1], stored[#stored + 2] = id, entry
    reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = id, text(slot), shown_rate, entry
    slot = slot + step
  end
  redis.call('HSET', leases, unpack(stored))
  set_slot(source, slot - step + interval)
  if A.pace > 0 then set_pace(source, slot - step + A.pace) end
  return slot
end

-- Sources that stand in the due sets of a former version, some at a call: they come to where they belong. Then the name of
-- one of those sets is taken, so that workers of former versions do nothing but complain of its type: they would crawl what
-- the present seen filter knows, and what is excluded.
local function take_over_former()
  if redis.call('TYPE', K.due_fast).ok == 'string' then return end
  for _, former in ipairs({K.due_fast, K.due_mid, K.due_slow}) do
    local found = attempt('ZPOPMIN', former, 500) or {}
    for position = 1, #found, 2 do schedule(found[position]) end
  end
  if redis.call('EXISTS', K.due_fast, K.due_mid, K.due_slow) == 0 then
    redis.call('SET', K.due_fast, 'keeps workers of former versions away: stop them')
  end
end

local function save()
  if #reply > 4 then redis.call('SET', K.lease_sequence, text(sequence)) end
  save_due()
  save_turns()
  save_circuits()
end

-- How many requests the circuit lets out now; a period that is over gives way to probes, and a source that an
-- operator has taken out of the halted set is resumed at once.
local function admitted(source)
  if held_until(source) > 0 then return 0 end
  local circuit = circuit_of(source)
  if circuit.state == 'halted' then close_circuit(source, 'permanent', 'an operator resumed it', true) end
  if circuit.state == 'open' then let_probes_out(source) end
  return circuit.state == 'half_open' and probes_left(source) or math.huge
end

local kept_for_quarantined -- the source of the request that a worker makes room for: its next slot is that one's
for _ = 1, 100 do
  local source = source_of_quarantined(quarantined)
  if not quarantined or source and not is_request_excluded(source, quarantined:sub(#source + 2)) then break end
  redis.call('LPOP', K.quarantine)
  if source then
    drop(source, 'excluded', {quarantined:sub(#source + 2)})
    redis.call('DECR', K.outstanding)
  else
    add_dead_letter('entry', quarantined, '', 'quarantined request not written by crawlproject', 0)
  end
  quarantined = redis.call('LINDEX', K.quarantine, 0)
end
local source_to_prove = source_of_quarantined(quarantined)
if source_to_prove and is_request_excluded(source_to_prove, quarantined:sub(#source_to_prove + 2)) then
  source_to_prove = nil -- there are more of them: at the next call
end
if source_to_prove then
  local source = source_to_prove
  local lasts = redis.call('PTTL', K.quarantine_turn)
  if lasts > 30000 or lasts == -1 then redis.call('DEL', K.quarantine_turn) end -- the clock was set back, or it is junk
  local rate, slot = effective_rate(source), math.max(next_slot(source), paced_until(source))
  local interval = interval_of(rate)
  if not interval or slot > now + 1000000 or admitted(source) == 0 then
    -- Nobody waits for it, least of all the worker whose turn it was.
    redis.call('RPUSH', K.quarantine, redis.call('LPOP', K.quarantine))
    if redis.call('GET', K.quarantine_turn) == A.worker then redis.call('DEL', K.quarantine_turn) end
  else
    redis.call('SET', K.quarantine_turn, A.worker, 'NX')
    if redis.call('GET', K.quarantine_turn) == A.worker then
      redis.call('PEXPIRE', K.quarantine_turn, 30000)
      reply[4] = text(slot)
      if A.idle and slot <= now + A.horizon then
        redis.call('LREM', K.quarantine, 1, quarantined)
        redis.call('SET', K.quarantine_turn, '', 'PX', 1000) -- the next one's turn comes after other work
        give(source, slot, interval, rate, {quarantined:sub(#source + 2)})
      end
      save()
      return reply
    end
    if redis.call('GET', K.quarantine_turn) ~= '' then kept_for_quarantined = source end
  end
end

local found_quarantined = false

-- Sources that have waited are all free now. Starting them all now would keep a worker from starting those on
-- time whose moment it is, so they get their slots one after the other, and keep that distance.
local behind = 0
local function spread(slot)
  if slot > now then return slot end
  behind = behind + 1
  return now + (behind - 1) * A.spread
end

-- Work of a source that has left the catalogue, where unknown ones are refused, or whose name is invalid: a hundred
-- requests a call.
local function refuse(source, reason)
  local entries = take(source, 100)
  for _, entry in ipairs(entries) do add_dead_letter('entry', entry, source, reason, deliveries_of(entry)) end
  redis.call('DECRBY', K.outstanding, #entries)
  if overflow > 0 then promote(source, outstanding) end
  schedule(source)
  return 0
end

-- Work of an excluded source: it is dropped. In all, a call drops `may_drop` requests or a few more.
local may_drop = 250
local function drop_work_of(source)
  if may_drop <= 0 then return 0 end
  local entries = take(source, may_drop)
  drop(source, 'excluded', entries)
  may_drop = may_drop - #entries
  redis.call('DECRBY', K.outstanding, #entries)
  if overflow > 0 then promote(source, outstanding) end
  schedule(source)
  return 0
end

-- Takes out of `entries` what goes to an excluded host: it is dropped, and uses no slot. Returns whether that is enough.
-- Where there is one, more may stand behind it, at the heads of the queues: of a slow source they would be taken singly.
local function drop_some(source, entries)
  local dropped = drop_excluded(source, entries)
  if dropped == 0 then return false end
  local keys = queues_of(source)
  for index = #keys, 1, -1 do
    local ahead, gone = attempt('LRANGE', keys[index], 0, 49) or {}, {}
    for _, entry in ipairs(ahead) do
      if not is_request_excluded(source, entry) then break end
      gone[#gone + 1] = entry
    end
    if #gone > 0 then
      redis.call('LTRIM', keys[index], #gone, -1)
      has.queued[source] = nil
      drop(source, 'excluded', gone)
      dropped = dropped + #gone
    end
    if #gone < #ahead then break end
  end
  may_drop = may_drop - dropped
  redis.call('DECRBY', K.outstanding, dropped)
  return may_drop <= 0
end

-- Leases those of `entries` that do not belong to their source, without slots. Returns the others, and whether that is
-- enough: in all, a call moves `may_move` requests or a few more.
--
-- Where they come to they are outstanding as before: what their source has in its overflow may take their places only as
-- far as the frontier is not full. Else the last one stays for now, so that a source with an overflow has a queue.
local may_move = 250
local has_moved = {} -- sources
local function move_strays(source, entries)
  if belief_in(source) == true then return entries, false end
  local strays, stored, stays, waits = {}, {}, {}, false
  for _, entry in ipairs(entries) do
    local list = belongs(source, entry) and stays or strays
    list[#list + 1] = entry
  end
  if #strays == 0 then return entries, false end
  has_moved[source] = true
  if overflow > 0 and outstanding >= A.high_water and backlog_of(source) == 0 and has_overflow(source) then
    put_back(source, table.remove(strays))
    set_slot(source, math.max(next_slot(source), now + 1000000))
    waits = true
  end
  for _, entry in ipairs(strays) do
    sequence = sequence + 1
    local id, place = text(sequence) .. '.0:' .. source, #reply -- of no generation: it is no probe
    stored[#stored + 1], stored[#stored + 2] = id, entry
    reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = id, '', '', entry
  end
  may_move = may_move - #strays
  if #stored > 0 then redis.call('HSET', leases, unpack(stored)) end
  return stays, waits or may_move <= 0
end

-- Takes out of `entries` what is to be leased alone.
local last_delivery = math.max(A.max_deliveries - 1, 1)
local function quarantine(source, entries)
  for index = #entries, 1, -1 do
    if deliveries_of(entries[index]) >= last_delivery then
      redis.call('RPUSH', K.quarantine, source .. '\n' .. table.remove(entries, index))
      found_quarantined = true
    end
  end
end

local function grant(source, budget)
  if source == kept_for_quarantined then return 0 end
  if not is_name(source) then return refuse(source, 'invalid source name: feed it again under another') end
  if is_excluded(source) then return drop_work_of(source) end
  if refused(source) then return refuse(source, 'unknown source: ' .. source) end
  local rate = effective_rate(source)
  local interval = interval_of(rate)
  local room = math.min(budget, rooms[source] or A.room, admitted(source))
  if room <= 0 then
    if held_until(source) > 0 or circuit_of(source).state == 'half_open' then schedule(source) end
    return 0
  end
  local slot, given, last = spread(math.max(next_slot(source), paced_until(source))), 0, now
  if interval then last = now + horizon_at(source, interval) end
  while interval and given < room and slot <= last do
    local entries = take(source, math.min(room - given, math.floor((last - slot) / math.max(interval, A.pace)) + 1))
    if #entries == 0 then break end
    local enough = drop_some(source, entries)
    local stays, moved_enough = move_strays(source, entries)
    entries, enough = stays, enough or moved_enough
    quarantine(source, entries)
    if #entries > 0 then slot, given = give(source, slot, interval, rate, entries), given + #entries end
    if enough then break end
  end
  rooms[source] = (rooms[source] or A.room) - given
  if overflow > 0 then
    local most = has_moved[source] and A.high_water - outstanding or nil
    outstanding = outstanding + promote(source, outstanding, most)
  end
  schedule(source)
  note_turn(source, given, interval, slot <= last)
  return given
end

-- Grants work of a tier. What it has not come to is left for the next time; whom the budget stopped comes last then.
local function serve(index, budget)
  local given, rest, stopped = 0, {}, nil
  for _, source in ipairs(due[index].names) do
    if given >= budget then
      rest[#rest + 1] = source
    else
      given = given + grant(source, budget - given)
      if given >= budget then stopped = source end
    end
  end
  rest[#rest + 1] = stopped
  due[index].names = rest
  return given
end

local left = A.want
for _, share in ipairs({{1, 2}, {2, 2}, {3, 1}, {1, 1}, {2, 1}}) do
  if left > 0 then left = left - serve(share[1], math.ceil(left / share[2])) end
end

take_over_former()
save()
for _, key in pairs(DUE) do
  local first = number(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
  if first and (reply[4] == '' or first < tonumber(reply[4])) then reply[4] = text(first) end
end
if found_quarantined then reply[4] = text(now) end
return reply
