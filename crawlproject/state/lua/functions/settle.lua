-- Ends leases. For each, all or nothing: its outcome, its event, counts and status, what it says about the
-- source, and the end of the lease.
--
-- A: worker; high_water; min_rate; circuit; pace; dead_maxlen (of refusals kept); refuse_unknown; latency_backoff (whether slow
--    answers slow a source down); ids, of leases. What else there is of a settlement stands at its number in:
--    streams, events                          done: the event goes to that stream (1: images, 2: link rot, 3: pages, 4: probes)
--    nothing of what stands here              done, without an event
--    dead, entries, images, attempts (or none), refusals  a dead letter, for that reason, with what is known of its image
--                                             and of the last attempt;
--                                             `refusals`: because the site forbids it
--    entries, domains (or none), delays (us)  back to the queue of its source, or the domain's: later, or to its head; if
--                                             that is excluded, or its source, it is dropped. With `names` beside
--                                             domains: of that source, where the name is believed; `strays`: it
--                                             goes behind what waits there
--    unsent (its slot, us): it was never sent; with a delay of the spider's own, the next one need not wait for that
--    unused (its slot, us), rates (when it was given out): nobody has so much as connected for it; if no slot was given
--                                             out after it, the source gets it back. The last one comes first
--    sources (where not the one that paid); counts (name -> number of the settlement -> n, added to its source);
--    parses (us, that reading the page took); parse_buckets;
--    revisits (a stored request), revisit_pages, intervals (us): when its page is looked at again, see revisits.lua
--    statuses; fine (true or false); hosts (that gave the result); latencies (us); buckets (of the latency, from 0); fetches (us); fetch_buckets; slows;
--    holds (us); answered.
--    The status is noted for the source that paid, with `fine` as a sample of its circuit; without it it says nothing
--    about the source. `slows`: slows the source down (429, 503), and holds it for `holds` if that is set. `answered`:
--    the site has answered, by a redirect or an opt-out.
--    sents (us), results, received (bytes of the body), sent_rates (1/1000 rps): a request was sent at that moment, and has
--    ended so (where not as `statuses` says). forbidden: by what the site forbids it, `robots` or `opt_out`. Both count
--    for the source that paid, see requests.lua.
-- Reply: {a list of 1 (settled) and 0 (the lease was gone: nothing was emitted or counted), the sources among
--    those that paid to which nothing may go out now}
--
-- What comes to a source from another one, by a redirect or because it belongs there, takes no more of the frontier than
-- that source's share: the rest goes to its overflow. To a source of another shard it goes by the outbox, and counts as
-- outstanding here until that shard has it.
--
-- A lease that is gone was settled before, or given to another worker after this one's heartbeat lapsed.
-- What trips a circuit stops it in this very call: nothing is granted afterwards.
register('settle', function(ctx, K, A)
  local leases = K.leases_of .. A.worker
  local event_streams = {K.image_events, K.link_rot_events, K.page_events, K.probe_events}

  local payers, generations = {}, {}
  do -- blocks: Lua has room for 200 variables at a time
    local names, chosen = {}, {}
    for index, id in ipairs(A.ids) do
      local _, generation, payer = grants.parts_of(id)
      generations[index], payers[index] = generation or false, payer or false
      if payer and not chosen[payer] then
        chosen[payer] = true
        names[#names + 1] = payer
      end
    end
    circuits.look_up_halted(ctx, names)
    circuits.look_up(ctx, names)
    circuits.look_up_rules(ctx, names)
    circuits.look_up_statuses(ctx, names)
    if next(A.sents) then report.look_up_seconds(ctx, names) end
  end

  local reply, ended, touched, counts, buckets, looked_at = {}, 0, {}, {}, {}, {}
  local arrived = {} -- source -> requests that have come to its queues from those of others

  local function count(name, source, number)
    local of_name = counts[name]
    if not of_name then
      of_name = {}
      counts[name] = of_name
    end
    of_name[source] = (of_name[source] or 0) + number
  end

  local function learn(index, payer, generation)
    local status, fine, latency = A.statuses[index], A.fine[index], A.latencies[index]
    if not status then
      samples.end_without_sample(ctx, payer, generation, A.answered[index])
      return
    end
    if not looked_at[payer] and circuits.are_statuses_deleted(ctx, payer) then
      local was = circuits.of(ctx, payer).state
      local kind = was == 'halted' and 'permanent' or was ~= 'closed' and 'temporary' or nil
      circuits.close(ctx, payer, kind, 'an operator deleted the statuses', true)
    end
    looked_at[payer] = true
    circuits.note_status(ctx, payer, status)
    local circuit, slows = circuits.of(ctx, payer), A.slows[index]
    if circuit.noted == 0 and (slows or circuit.state ~= 'closed' or circuit.factor < 1) then
      circuits.change(ctx, payer).noted = 1
    end
    if slows then
      samples.slow_down(ctx, payer, 0.5, 'status ' .. status)
      if A.holds[index] then
        local held, wait = circuit.hold, A.holds[index]
        circuits.change(ctx, payer).hold = math.max(held, ctx.now + wait)
        -- Those in flight are answered alike: one hold.
        if held <= ctx.now or ctx.now + wait > held + 5000000 then
          report.note_incident(ctx, payer, 'held', string.format('status %s, Retry-After: %.0f s', status, wait / 1000000), 'held')
        end
      end
    end
    if latency then
      local bucket = A.buckets[index]
      count('answers', payer, 1)
      count('latency_us', payer, latency)
      buckets[bucket] = (buckets[bucket] or 0) + 1
      if A.latency_backoff then samples.note_latency(ctx, payer, latency) end
    end
    local took = A.fetches[index]
    if took then
      local bucket = A.fetch_buckets[index]
      local field = 'fetch:' .. text(bucket)
      buckets[field] = (buckets[field] or 0) + 1
      buckets.fetch_us = (buckets.fetch_us or 0) + took
      samples.note_fetch(ctx, payer, bucket)
    end
    if fine ~= nil and A.hosts[index] then samples.note_host(ctx, payer, A.hosts[index], fine) end
    if fine == nil then
      samples.end_without_sample(ctx, payer, generation, A.answered[index])
    else
      samples.sample(ctx, payer, generation, fine)
    end
  end

  -- What the report of the source says of this end.
  local function note_end(index, payer)
    local status, sent, forbidden = A.statuses[index], A.sents[index], A.forbidden[index]
    if sent then
      report.note_request(ctx, payer, sent, A.results[index] or status or 'none', A.received[index] or 0, A.sent_rates[index])
    elseif status and not status:find('^%d') then
      report.note_kind(ctx, payer, '-' .. status, 1)
    end
    if forbidden then report.note_kind(ctx, payer, forbidden, 1) end
  end

  -- Gives a request back; returns whether it is outstanding still.
  local function give_back(index, source)
    local entry, domain, own = A.entries[index], A.domains[index], source
    if domain then source = belonging.source_of(ctx, A.names[index], domain) end
    if exclusions.has(ctx, own) or exclusions.has_request(ctx, source, entry) then
      exclusions.drop(ctx, own, 'excluded', {entry})
      return false
    end
    if rates.refused(ctx, source) then
      dead_letters.add(ctx, 'entry', entry, source, 'unknown source: ' .. source, queues.deliveries_of(entry))
      return false
    end
    if shards.is_elsewhere(ctx, source) then
      local shard, name = shards.shard_of(ctx, source), domain and A.names[index] or not domain and source or nil
      shards.send(ctx, shard, 'request', entry, name, domain, A.delays[index], A.strays[index])
      return true
    end
    local stored = queues.arrive(ctx, source, entry, A.ids[index], A.delays[index], A.strays[index])
    if stored then touched[source] = true end
    if source ~= payers[index] or A.strays[index] then arrived[source] = (arrived[source] or 0) + (stored and 1 or 0) end
    return stored
  end

  -- A source whose slots were missed, with many others' in the same moment, waits for none of its intervals in vain, and
  -- comes to stand apart from them. Not where the rate was lowered since: see renew.lua.
  local function return_slot(payer, slot, rate)
    local last, present = slots.free_at(ctx, payer), due_index.effective_rate(ctx, payer)
    local interval = rates.interval_of(present)
    if last and interval and present >= rate and math.abs(last - slot - interval) < 100 then slots.set(ctx, payer, slot) end
    touched[payer] = true
  end

  local function save_counts()
    for name, numbers in pairs(A.counts) do
      for index = 1, #A.ids do
        if numbers[index] and reply[index] == 1 then count(name, A.sources[index] or payers[index] or '', numbers[index]) end
      end
    end
    local active, totals, recent = {}, {}, {}
    for name, of_sources in pairs(counts) do
      local total = 0
      for source, number in pairs(of_sources) do total, active[source] = total + number, true end
      statistics.add_all(K.counts_of .. name, of_sources)
      totals[name] = total
    end
    for index = 1, #A.ids do
      if A.parses[index] and reply[index] == 1 then
        local field = 'parse:' .. text(A.parse_buckets[index])
        buckets[field] = (buckets[field] or 0) + 1
        buckets.parse_us = (buckets.parse_us or 0) + A.parses[index]
      end
    end
    if next(totals) then statistics.add_all(K.totals, totals) end
    if next(buckets) then statistics.add_all(K.latencies, buckets) end
    for payer in pairs(looked_at) do active[payer] = true end
    for source in pairs(active) do recent[#recent + 1], recent[#recent + 2] = text(ctx.now), source end
    if #recent > 0 then redis.call('ZADD', K.active, unpack(recent)) end
  end

  -- The lease ends before anything else is written for it, and Redis never denies that write. One at a time: should a later
  -- one meet what nobody has foreseen, those after it are still there to be settled.
  local function end_lease(index, id)
    local payer = payers[index]
    local source = A.sources[index] or payer or id:match(':(.*)$') or ''
    reply[index] = redis.call('HDEL', leases, id)
    if reply[index] == 1 then
      if A.streams[index] then
        redis.call('XADD', event_streams[A.streams[index]], '*', 'event', A.events[index])
        ended = ended + 1
      elseif A.dead[index] then
        local entry = A.entries[index]
        dead_letters.add(ctx, 'entry', entry, source, A.dead[index], queues.deliveries_of(entry), A.refusals[index], A.images[index],
          A.attempts[index])
        if payer then ended = ended + 1 end -- a lease that was not granted was not counted
      elseif not A.entries[index] or not give_back(index, source) then
        ended = ended + 1
      end
      if payer then
        learn(index, payer, generations[index])
        note_end(index, payer)
      end
      if A.revisits[index] then revisits.note(ctx, source, A.revisit_pages[index], A.revisits[index], A.intervals[index]) end
      if payer and A.unsent[index] then
        pace.undo(ctx, payer, A.unsent[index])
        touched[payer] = true
      end
      if payer and A.unused[index] then return_slot(payer, A.unused[index], A.rates[index]) end
    end
  end

  for index, id in ipairs(A.ids) do end_lease(index, id) end
  if ended > 0 then redis.call('DECRBY', K.outstanding, ended) end
  if next(arrived) then
    local outstanding = tonumber(redis.call('GET', K.outstanding) or 0)
    for source, number in pairs(arrived) do
      outstanding = outstanding + queues.keep_to_share(ctx, source, number, outstanding)
      touched[source] = true
    end
  end
  save_counts()
  for source in pairs(ctx.changed) do touched[source] = true end
  due_index.schedule_all(ctx, touched)
  circuits.save_statuses(ctx)
  samples.save_windows(ctx)
  circuits.save(ctx)
  report.save(ctx)
  local held_back = {}
  for payer in pairs(looked_at) do
    if due_index.held_until(ctx, payer) > 0 then held_back[#held_back + 1] = payer end
  end
  return {reply, held_back}
end)
