-- What a lease call grants: the leases, as fields and values, and the number of the last one. Beyond the clock: after a fail-over that
-- has lost the last numbers, none is given a second time.
function state.granted(ctx) return {number = math.max(ctx.counters.lease, ctx.now), leases = {}} end

-- Should one source meet what nobody has foreseen, the leases of those before it are there: the worker finds them (reconcile).
at_end('granted', function(ctx)
  if #ctx.granted.leases == 0 then return end
  write_all('HSET', ctx.K.leases_of .. ctx.A.worker, ctx.granted.leases)
  redis.call('HSET', ctx.K.counters, 'lease', text(ctx.granted.number))
end)

-- Hands out requests together with their send slots.
--
-- A: worker; want (leases at most); rooms (source -> how many leases it may get); room (how many any other may get);
--    suspect (the worker holds one, see below; none: it does not); horizon (us ahead that slots are reserved); spread (us
--    between sources that have waited); min_rate; circuit; pace; refuse_unknown; dead_maxlen; high_water.
-- Reply: {moment, state, next due (us, '' if none), batch, batch, ...}
--    batch: {source, generation, number, slot, step, rate, requests}: the first of these requests is leased as
--    `number.generation:source`, and goes out at `slot`; each further one has the next number, and goes out a `step` (us) later.
--    Without a slot ('') they do not belong to this source (see belonging.lua): they must not go out, but back to where they
--    belong, which the caller finds by their domains.
--    state: {'ok', ''}, {'lapsed', ''} (this worker lost its leases), or why leasing is paused: {kind, sentence},
--    see pause.lua.
--
-- Fail closed: without a pulse nothing goes out. The fastest tier gets half of what is wanted, the middle
-- one half of the rest, and what is left over rolls on; within a tier the source with the greatest wait x weight
-- of its class comes first. Unused time is not saved: a slot is never before now. A spider with a delay of its own (see the slots)
-- gets slots as far apart as that; those between are others'. A source that is halted or held is put
-- where its time comes; one whose circuit is half open gets a few probes.
--
-- Spiders that have work for the same source take its slots as they come: see waits.
--
-- A call looks at the sources that are due, a tier's in the order of their turns, as far as its part of the leases goes, and gives to each
-- what its slots, its circuit and the worker leave room for. What is left over goes round again.
--
-- A request that was lost with a worker is a suspect: it may be what killed that. A worker holds no more than one, beside
-- other work, so what kills workers is the only suspect that all of these deaths have in common. One that this worker may not
-- have waits a moment, for another worker, and lets the others of its source pass.
register('lease', function(ctx, K, A)
  local reply = {text(ctx.now), {'ok', ''}, ''}
  if not redis.call('ZSCORE', K.workers, A.worker) then
    reply[2] = {'lapsed', ''}
    return reply
  end
  local why = pause.reason(ctx)
  if why[1] ~= '' then
    reply[2] = why
    return reply
  end
  clock.keep(ctx)
  reply[1] = text(ctx.now)
  if ctx.resume > ctx.now then
    reply[3] = text(ctx.resume)
    return reply
  end

  local LEAST_READ = 8 -- sources of a tier
  local SHARES = {{2, 2, 1}, {1, 1, 1}, {1, 1, 1}} -- of what is left, of each tier, each time round
  local PUT_OFF_US, FURTHER_US = 250000, 40000 -- suspects: the first one of a call, and how far each is behind the one before
  local rooms, has_overflows = A.rooms, ctx.counters.overflow ~= 0
  local granted, leases = ctx.granted, ctx.granted.leases
  -- Requests that this call may take out of queues and not lease, or a few more; and those of sources that get no leases: apart,
  -- so that these keep none from others.
  local spare, may_end = 250, 250
  local holds_suspect, put_off = A.suspect, 0
  local looked_at, had, others_had = {}, {}, {} -- sources; for how long they have slots by this call (us), and by others before
  local inhabited = {} -- places of due sets that are not empty
  local is_full, rid_of = ctx.counters.outstanding >= A.high_water, {} -- sources of which this call has requests dropped or moved

  -- What is due of each tier, the fastest first: the source with the greatest wait x weight of its class first. So no class starves,
  -- and of two that are short of slots the higher one waits half as long. Sources that may get no more stay at the head of a
  -- tier, and are passed over; so they hide no others.
  local function read_due()
    local most, tiers = math.max(2 * A.want, 4 * LEAST_READ), {} -- halted ones among them give nothing
    for _, room in pairs(rooms) do
      if room <= 0 then most = most + 1 end
    end
    for index = 1, 3 do tiers[index] = {sources = {}, at = 1, known = 0, turns = {}, classes = 0, stopped = {}} end
    local others = redis.call('EXISTS', unpack(ctx.due_sets)) -- so many sets are not empty, and are still to be found
    for index, set in ipairs(ctx.due_sets) do
      if others == 0 then break end
      local place = PLACES[index]
      local tier, weight = tiers[3 - place:sub(1, 1)], 2 ^ RANK_IN[place]
      local rows = redis.call('ZRANGE', set, 0, most - 1, 'WITHSCORES')
      if #rows > 0 then inhabited[place], others, tier.classes = true, others - 1, tier.classes + 1 end
      for row = 1, #rows, 2 do
        local source, at = rows[row], tonumber(rows[row + 1])
        local early = ctx.now + A.horizon - at
        if early < 0 then break end
        if rawget(ctx.standing, source) then -- that of the better class comes later
          due_index.depart(ctx, source, ctx.standing[source].place)
        elseif (rooms[source] or 1) > 0 then
          tier.sources[#tier.sources + 1] = source
        end
        ctx.standing[source], tier.turns[source] = {place = place, at = at}, early * weight
      end
    end
    for _, tier in ipairs(tiers) do
      if tier.classes > 1 then table.sort(tier.sources, function(a, b) return tier.turns[a] > tier.turns[b] end) end
    end
    return tiers
  end

  -- Looks up the next sources of each tier: as many as `left` leases need, should each of them get one.
  local function look_at(tiers, left, shares)
    local unknown = {}
    for index, tier in ipairs(tiers) do
      local budget = math.ceil(left / shares[index])
      local last = math.min(tier.at - 1 + math.max(budget, LEAST_READ), #tier.sources)
      for place = tier.known + 1, last do
        local source = tier.sources[place]
        if not tier.stopped[source] then unknown[#unknown + 1] = source end
      end
      left, tier.known = left - math.min(budget, math.max(last - tier.at + 1, 0)), math.max(tier.known, last)
    end
    if #unknown == 0 then return end
    due_index.look_up(ctx, unknown)
    queues.look_up_delayed(ctx, unknown)
    exclusions.look_up(ctx, unknown)
    due_index.follow_overrides(ctx, unknown)
    look_up(ctx, 'beliefs', unknown)
    look_up(ctx, 'waiting', unknown)
  end

  -- Leases requests, with the slots from `slot` on, or without (nil).
  local function hand_out(source, requests, generation, slot, step, rate)
    if #requests == 0 then return end
    generation = text(generation)
    reply[#reply + 1] = {source, generation, text(granted.number + 1), slot and text(slot) or '', string.format('%.17g', step),
      string.format('%.17g', rate), requests}
    local ending = '.' .. generation .. ':' .. source
    for _, entry in ipairs(requests) do
      granted.number = granted.number + 1
      leases[#leases + 1], leases[#leases + 2] = text(granted.number) .. ending, entry
    end
  end

  -- How many requests the circuit lets out now; a period that is over gives way to probes, and a source that an
  -- operator has taken out of the halted set is resumed at once.
  local function admitted(source)
    if due_index.held_until(ctx, source) > 0 then return 0 end
    local circuit = ctx.circuits[source]
    if circuit.state == 'halted' then due_index.resume(ctx, source, 'permanent') end
    if circuit.state == 'open' then circuits.let_probes_out(ctx, source) end
    return circuit.state == 'half_open' and circuits.probes_left(ctx, source) or math.huge
  end

  -- Sources that have waited are all free now. Starting them all now would keep a worker from starting those on
  -- time whose moment it is, so they get their slots one after the other, and keep that distance.
  local behind = 0
  local function spread(slot)
    if slot > ctx.now then return slot end
    behind = behind + 1
    return ctx.now + (behind - 1) * A.spread
  end

  local function drop(source, entries)
    rid_of[source] = true
    exclusions.drop(ctx, source, 'excluded', entries)
    queues.count(ctx, 'outstanding', -#entries)
  end

  -- Ends work of a source that gets no leases: it is excluded, or there is a reason for dead letters.
  local function end_work_of(source, reason)
    if may_end <= 0 then return end
    local entries = queues.take(ctx, source, may_end, 5)
    may_end = may_end - #entries
    if reason then
      for _, entry in ipairs(entries) do dead_letters.add(ctx, 'entry', entry, source, reason, queues.deliveries_of(entry)) end
      queues.count(ctx, 'outstanding', -#entries)
    else
      drop(source, entries)
    end
    if has_overflows then queues.promote(ctx, source) end
    looked_at[source] = true
  end

  -- Leaves those of `entries` that may go out. What goes to an excluded host is dropped. What belongs to another source by now is leased
  -- without slots. A suspect that this worker may not have waits a moment.
  local function sort_out(source, entries)
    local stays, strays, dropped = {}, {}, {}
    local is_foreign = shards.is_elsewhere(ctx, source) -- however it has come here: its slots are given out elsewhere
    local has_exclusions, belief = ctx.has_exclusions, ctx.beliefs[source]
    for index = 1, #entries do
      local entry = entries[index]
      local is_suspect = queues.deliveries_of(entry) > 0
      if has_exclusions and exclusions.has_request(ctx, source, entry) then
        dropped[#dropped + 1] = entry
      elseif is_foreign or belief ~= true and not belonging.belongs(ctx, source, entry) then
        strays[#strays + 1] = entry
      elseif is_suspect and holds_suspect then
        queues.delay(ctx, source, entry, text(granted.number) .. '.' .. put_off, PUT_OFF_US + put_off * FURTHER_US)
        put_off = put_off + 1
      else
        stays[#stays + 1], holds_suspect = entry, holds_suspect or is_suspect
      end
    end
    if #dropped > 0 then drop(source, dropped) end
    if #strays > 0 then rid_of[source] = true end
    hand_out(source, strays, 0, nil, 0, 0) -- of no generation: none is a probe
    spare = spare - (#entries - #stays)
    return stays
  end

  -- Leases requests of a source that is to have work, at most `room`; returns how many.
  local function give(source, room, rate, interval)
    local circuit, step, given = ctx.circuits[source], math.max(interval, A.pace), 0
    local free = ctx.slots[source] or 0
    local slot = spread(math.max(free, ctx.now, ctx.paces[source]))
    local last = ctx.now + waits.horizon_at(ctx, source)
    while given < room and slot <= last and spare > 0 do
      local count = math.min(room - given, math.floor((last - slot) / step) + 1)
      local taken = queues.take(ctx, source, count, due_index.rank_of(ctx, source))
      local entries = sort_out(source, taken)
      hand_out(source, entries, circuit.generation, slot, step, rate)
      slot, given = slot + #entries * step, given + #entries
      if #taken < count then break end
    end
    if given > 0 then
      if circuit.state == 'half_open' then circuits.change(ctx, source).probing = circuit.probing + given end
      slots.give(ctx, source, slot - step, slot - step + interval)
      if A.pace > 0 then pace.set(ctx, source, slot - step + A.pace) end
    end
    -- The next slot was where the source stands: what is beyond that others have taken.
    if not had[source] then had[source], others_had[source] = 0, free - ctx.standing[source].at end
    had[source] = had[source] + given * interval
    return given
  end

  -- Leases requests of a source, at most `budget`; returns how many.
  local function grant(source, budget)
    local reason = not naming.is_valid(source) and 'invalid source name: feed it again under another' or nil
    if not reason and rates.refused(ctx, source) then reason = 'unknown source: ' .. source end
    local is_excluded = exclusions.has(ctx, source)
    if reason or is_excluded then
      end_work_of(source, not is_excluded and reason or nil)
      return 0
    end
    local may_go, rate = admitted(source), due_index.effective_rate(ctx, source)
    local interval, room, given = rates.interval_of(rate), math.min(budget, rooms[source] or A.room), 0
    if may_go > 0 and interval then
      if room <= 0 then return 0 end -- it comes first for whoever has room
      given = give(source, math.min(room, may_go), rate, interval)
      rooms[source] = (rooms[source] or A.room) - given
    end
    looked_at[source] = true
    -- One that comes a moment before its delayed requests are ready takes nothing: nothing takes the place of that.
    if has_overflows and (given > 0 or rid_of[source] or not is_full) then queues.promote(ctx, source) end
    return given
  end

  -- Grants work of the next sources of a tier. Whom the budget stopped comes last in the next round.
  local function serve(tier, budget)
    local given = 0
    while given < budget and tier.at <= tier.known do
      local source = tier.sources[tier.at]
      tier.at, given = tier.at + 1, given + grant(source, budget - given)
      if given >= budget then tier.sources[#tier.sources + 1], tier.stopped[source] = source, true end
    end
    return given
  end

  local tiers, left = read_due(), A.want
  for _, shares in ipairs(SHARES) do
    look_at(tiers, left, shares)
    for index, tier in ipairs(tiers) do
      if left > 0 then left = left - serve(tier, math.ceil(left / shares[index])) end
    end
    if left <= 0 then break end
  end

  queues.look_at_rest(ctx, looked_at)
  for source in pairs(looked_at) do
    if not ctx.has.queued[source] then queues.look_anew(ctx, source) end
    due_index.schedule(ctx, source)
    if had[source] and ctx.standing[source] then waits.note(ctx, source, had[source], others_had[source]) end
  end
  for place in pairs(due_index.save(ctx)) do inhabited[place] = true end
  for place in pairs(inhabited) do
    local first = tonumber(redis.call('ZRANGE', K.due_of .. place, 0, 0, 'WITHSCORES')[2])
    if first and (reply[3] == '' or first < tonumber(reply[3])) then reply[3] = text(first) end
  end
  return reply
end)
