-- Hands out requests together with their send slots.
--
-- A: worker; want (leases at most); rooms (source -> how many leases it may get); room (how many any other may get);
--    suspect (the worker holds one, see below; none: it does not); horizon (us ahead that slots are reserved); spread (us
--    between sources that have waited); min_rate; circuit; pace; refuse_unknown; dead_maxlen; high_water.
-- Reply: {moment, state, next due (us, '' if none), id, slot, rate, entry, id, slot, ...}
--    A lease whose slot is '' is of a request that does not belong to its source (see belonging.lua): it must not go
--    out, but back to where it belongs, which the caller finds by its domain.
--    state: {'ok', ''}, {'lapsed', ''} (this worker lost its leases), or why leasing is paused: {kind, sentence},
--    see pause.lua.
--
-- Fail closed: without a pulse nothing goes out. The fastest tier gets half of what is wanted, the middle
-- one half of the rest, and what is left over rolls on; within a tier the source with the greatest wait x weight
-- of its class comes first. Unused time is not saved: a slot is never before now. A spider with a delay of its own (see pace.lua)
-- gets slots as far apart as that; those between are others'. A source that is halted or held is put
-- where its time comes; one whose circuit is half open gets a few probes.
--
-- Spiders that have work for the same source take its slots as they come: see waits.
--
-- A request that was lost with a worker is a suspect: it may be what killed that. A worker holds no more than one, beside
-- other work, so what kills workers is the only suspect that all of these deaths have in common. One that this worker may not
-- have waits a moment, for another worker, and lets the others of its source pass.
register('lease', function(ctx, K, A)
  local reply, overflow = {text(ctx.now), {'ok', ''}, ''}, ctx.counters.overflow

  -- Beyond the clock: after a fail-over that has lost the last numbers, none is given a second time.
  local sequence = math.max(ctx.counters.lease, ctx.now)

  if not redis.call('ZSCORE', K.workers, A.worker) then
    reply[2] = {'lapsed', ''}
    return reply
  end
  local pause = pause.reason(ctx)
  if pause[1] ~= '' then
    reply[2] = pause
    return reply
  end

  local MOST_ROUNDS = 4
  local LEAST_READ = 8 -- sources of a tier
  local PUT_OFF_US, FURTHER_US = 250000, 40000 -- suspects: the first one of a call, and how far each is behind the one before

  -- What is due. The sets are read in chunks, as far as is needed: each tier's part of the sources that are wanted, should
  -- each of them get one lease, and then, in further rounds, what is still missing. Sources that may get no more stay at the
  -- head of a tier, and are passed over; so they hide no others.
  local rooms = A.rooms
  local due = {{}, {}, {}} -- by tier, the fastest first: sources that have been read and not been served
  local reading = {
    heads = {{}, {}, {}}, -- by tier: where each of its classes has been read to
    reach = ctx.now + A.horizon,
    full = 0, -- how many sources may get no more
    chosen = {}, -- sources that were read
    inhabited = {}, -- the due sets that are not empty
  }
  for _, room in pairs(rooms) do
    if room <= 0 then reading.full = reading.full + 1 end
  end

  -- Comes to the next source of a class; its wait is nil when no further one is due.
  local function advance(head)
    head.at = head.at + 2
    if not head.rows[head.at] and not head.ended then
      local last = head.read + head.chunk - 1
      head.rows = redis.call('ZRANGE', K.due_of .. head.place, head.read, last, 'WITHSCORES')
      head.at, head.read, head.ended = 1, last + 1, #head.rows < 2 * head.chunk
      head.chunk = 2 * head.chunk
    end
    head.source, head.score = head.rows[head.at], tonumber(head.rows[head.at + 1])
    local early = head.score and reading.reach - head.score
    head.wait = early and early >= 0 and early * head.weight or nil
  end

  local function open_due_sets()
    local others = redis.call('EXISTS', unpack(ctx.due_sets)) -- so many of these there are, and are still to be found
    for class = 0, 4 do -- most requests are of the first ones
      for index = 1, 3 do
        if others == 0 then return end
        local head = {place = (3 - index) .. class, weight = 2 ^ class, chunk = 16, read = 0, rows = {}, at = 1}
        advance(head)
        if head.rows[1] then reading.inhabited[head.place], others = true, others - 1 end
        if head.wait then table.insert(reading.heads[index], head) end
      end
    end
  end

  -- The next `most` sources of a tier that are due, in the order of their turns: the one with the greatest wait x weight of its
  -- class first. So no class starves, and of two that are short of slots the higher one waits half as long.
  local function read_due(index, most, sources, places_read, scores)
    local of_tier, wanted = reading.heads[index], #sources + most
    for _ = 1, most + reading.full do
      if #sources >= wanted or #of_tier == 0 then break end
      local place = 1
      for other = 2, #of_tier do
        if of_tier[other].wait >= of_tier[place].wait then place = other end
      end
      local head = of_tier[place]
      if (rooms[head.source] or 1) > 0 then
        local last = #sources + 1
        sources[last], places_read[last], scores[last] = head.source, head.place, head.score
      end
      advance(head)
      if not head.wait then table.remove(of_tier, place) end
    end
  end

  -- Reads what the next round of `left` leases needs, and looks all of it up; `shares`: the part of what is left that each
  -- tier gets. Returns whether anything was read.
  local function read_round(left, shares)
    local sources, places_read, scores, ends, chosen = {}, {}, {}, {}, reading.chosen
    for index = 1, 3 do
      local before, budget = #sources, math.ceil(left / shares[index])
      local most = budget > 0 and math.max(budget, LEAST_READ) or 0
      read_due(index, most - #due[index], sources, places_read, scores)
      ends[index] = #sources
      left = left - math.min(#due[index] + #sources - before, budget)
    end
    local unknown, index = {}, 1
    for position, source in ipairs(sources) do
      while position > ends[index] do index = index + 1 end
      if chosen[source] then
        due_index.stand_once(ctx, source, places_read[position], scores[position])
      else
        chosen[source], unknown[#unknown + 1] = true, source
        ctx.standing[source] = {place = places_read[position], at = scores[position]}
        table.insert(due[index], source)
      end
    end
    due_index.look_up(ctx, unknown)
    queues.look_up_delayed(ctx, unknown)
    exclusions.look_up(ctx, unknown)
    due_index.follow_overrides(ctx, unknown)
    belonging.look_up_beliefs(ctx, unknown)
    waits.look_up(ctx, unknown)
    return #sources > 0
  end

  open_due_sets()
  local was_read = read_round(A.want, {2, 2, 1})
  local leases = K.leases_of .. A.worker

  clock.keep(ctx)
  reply[1] = text(ctx.now)
  if ctx.resume > ctx.now then
    reply[3] = text(ctx.resume)
    return reply
  end

  local rate_texts = {} -- rate -> as it is written: most sources have one of few

  local function rate_text(rate)
    local written = rate_texts[rate]
    if not written then
      written = string.format('%.17g', rate)
      rate_texts[rate] = written
    end
    return written
  end

  -- Leases `entries` with the slots from `slot` on; returns the slot after the last one.
  local function give(source, slot, interval, rate, entries)
    local circuit, stored = circuits.of(ctx, source), {}
    local ending, shown_rate = '.' .. text(circuit.generation) .. ':' .. source, rate_text(rate)
    local step = math.max(interval, A.pace)
    if circuit.state == 'half_open' then circuits.change(ctx, source).probing = circuit.probing + #entries end
    for _, entry in ipairs(entries) do
      sequence = sequence + 1
      local id, place = text(sequence) .. ending, #reply
      stored[#stored + 1], stored[#stored + 2] = id, entry
      reply[place + 1], reply[place + 2], reply[place + 3], reply[place + 4] = id, text(slot), shown_rate, entry
      slot = slot + step
    end
    redis.call('HSET', leases, unpack(stored))
    slots.set(ctx, source, slot - step + interval)
    if A.pace > 0 then pace.set(ctx, source, slot - step + A.pace) end
    return slot
  end

  local function save()
    if #reply > 3 then redis.call('HSET', K.counters, 'lease', text(sequence)) end
    for place in pairs(due_index.save(ctx)) do reading.inhabited[place] = true end
    waits.save(ctx)
    circuits.save(ctx)
  end

  -- How many requests the circuit lets out now; a period that is over gives way to probes, and a source that an
  -- operator has taken out of the halted set is resumed at once.
  local function admitted(source)
    if due_index.held_until(ctx, source) > 0 then return 0 end
    local circuit = circuits.of(ctx, source)
    if circuit.state == 'halted' then circuits.close(ctx, source, 'permanent', 'an operator resumed it', true) end
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

  -- Work of a source that has left the catalogue, where unknown ones are refused, or whose name is invalid: a hundred
  -- requests a call.
  local function refuse(source, reason)
    local entries = queues.take(ctx, source, 100)
    for _, entry in ipairs(entries) do dead_letters.add(ctx, 'entry', entry, source, reason, queues.deliveries_of(entry)) end
    queues.count(ctx, 'outstanding', -#entries)
    if overflow ~= 0 then queues.promote(ctx, source) end
    due_index.schedule(ctx, source)
    return 0
  end

  -- Work of an excluded source: it is dropped. In all, a call drops `may_drop` requests or a few more.
  local may_drop = 250
  local function drop_work_of(source)
    if may_drop <= 0 then return 0 end
    local entries = queues.take(ctx, source, may_drop)
    exclusions.drop(ctx, source, 'excluded', entries)
    may_drop = may_drop - #entries
    queues.count(ctx, 'outstanding', -#entries)
    if overflow ~= 0 then queues.promote(ctx, source) end
    due_index.schedule(ctx, source)
    return 0
  end

  -- Takes out of `entries` what goes to an excluded host: it is dropped, and uses no slot. Returns whether that is enough.
  -- Where there is one, more may stand behind it, at the heads of the queues: of a slow source they would be taken singly.
  local function drop_some(source, entries)
    local dropped = exclusions.drop_excluded(ctx, source, entries)
    if dropped == 0 then return false end
    local keys = queues.keys_of(ctx, source)
    for index = #keys, 1, -1 do
      local ahead, gone = redis.call('LRANGE', keys[index], 0, 49), {}
      for _, entry in ipairs(ahead) do
        if not exclusions.has_request(ctx, source, entry) then break end
        gone[#gone + 1] = entry
      end
      if #gone > 0 then
        redis.call('LTRIM', keys[index], #gone, -1)
        ctx.has.queued[source] = nil
        exclusions.drop(ctx, source, 'excluded', gone)
        dropped = dropped + #gone
      end
      if #gone < #ahead then break end
    end
    may_drop = may_drop - dropped
    queues.count(ctx, 'outstanding', -dropped)
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
    local is_foreign = shards.is_elsewhere(ctx, source) -- however it has come here: its slots are given out elsewhere
    if not is_foreign and belonging.belief_in(ctx, source) == true then return entries, false end
    local strays, stored, stays, waits = {}, {}, {}, false
    for _, entry in ipairs(entries) do
      local list = not is_foreign and belonging.belongs(ctx, source, entry) and stays or strays
      list[#list + 1] = entry
    end
    if #strays == 0 then return entries, false end
    has_moved[source] = true
    if overflow ~= 0 and ctx.counters.outstanding >= A.high_water and queues.backlog_of(ctx, source) == 0 and queues.has_overflow(ctx, source) then
      queues.put_back(ctx, source, table.remove(strays))
      slots.set(ctx, source, math.max(slots.next(ctx, source), ctx.now + 1000000))
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

  -- Takes the suspects out of `entries` that this worker may not have: all but one. Returns whether that is enough: in all, a
  -- call puts off `may_put_off` requests or a few more.
  local holds_suspect, may_put_off, put_off = A.suspect, 250, 0
  local function put_off_suspects(source, entries)
    local stays, before = {}, put_off
    for _, entry in ipairs(entries) do
      local is_suspect = queues.deliveries_of(entry) > 0
      if is_suspect and holds_suspect then
        queues.delay(ctx, source, entry, text(sequence) .. '.' .. put_off, PUT_OFF_US + put_off * FURTHER_US)
        put_off = put_off + 1
      else
        stays[#stays + 1], holds_suspect = entry, holds_suspect or is_suspect
      end
    end
    return stays, put_off > before and put_off >= may_put_off
  end

  local function grant(source, budget)
    if not naming.is_valid(source) then return refuse(source, 'invalid source name: feed it again under another') end
    if exclusions.has(ctx, source) then return drop_work_of(source) end
    if rates.refused(ctx, source) then return refuse(source, 'unknown source: ' .. source) end
    local rate = due_index.effective_rate(ctx, source)
    local interval = rates.interval_of(rate)
    local room = math.min(budget, rooms[source] or A.room, admitted(source))
    if room <= 0 then
      if due_index.held_until(ctx, source) > 0 or circuits.of(ctx, source).state == 'half_open' then due_index.schedule(ctx, source) end
      return 0
    end
    local slot, given = spread(math.max(slots.next(ctx, source), pace.free_at(ctx, source))), 0
    local last = ctx.now + waits.horizon_at(ctx, source)
    local stands = ctx.standing[source] -- where its next slot was
    local others_had = stands and (slots.free_at(ctx, source) or 0) - stands.at or 0
    while interval and given < room and slot <= last do
      local count = math.min(room - given, math.floor((last - slot) / math.max(interval, A.pace)) + 1)
      local entries = queues.take(ctx, source, count, due_index.class_of(ctx, source))
      if #entries == 0 then break end
      local enough = drop_some(source, entries)
      local stays, moved_enough = move_strays(source, entries)
      local others, put_off_enough = put_off_suspects(source, stays)
      entries, enough = others, enough or moved_enough or put_off_enough
      if #entries > 0 then slot, given = give(source, slot, interval, rate, entries), given + #entries end
      if enough then break end
    end
    rooms[source] = (rooms[source] or A.room) - given
    if overflow ~= 0 then
      queues.promote(ctx, source, has_moved[source] and A.high_water - ctx.counters.outstanding or nil)
    end
    due_index.schedule(ctx, source)
    if interval and ctx.standing[source] then waits.note(ctx, source, given * interval, others_had) end
    return given
  end

  -- Grants work of a tier. What it has not come to is left for the next time; whom the budget stopped comes last then.
  local function serve(index, budget)
    local given, rest, stopped = 0, {}, nil
    for _, source in ipairs(due[index]) do
      if given >= budget then
        rest[#rest + 1] = source
      else
        given = given + grant(source, budget - given)
        if given >= budget then stopped = source end
      end
    end
    rest[#rest + 1] = stopped
    due[index] = rest
    return given
  end

  local left, shares = A.want, {2, 2, 1}
  for _ = 1, was_read and MOST_ROUNDS or 0 do
    local before = left
    for index = 1, 3 do
      if left > 0 then left = left - serve(index, math.ceil(left / shares[index])) end
    end
    if left <= 0 then break end
    shares = {1, 1, 1}
    if not read_round(left, shares) and left == before then break end
  end

  save()
  for place in pairs(reading.inhabited) do
    local first = tonumber(redis.call('ZRANGE', K.due_of .. place, 0, 0, 'WITHSCORES')[2])
    if first and (reply[3] == '' or first < tonumber(reply[3])) then reply[3] = text(first) end
  end
  return reply
end)
