local settling = {}

-- The counters of a histogram in the totals, by bucket.
local function buckets(name) return memo(function(bucket) return name .. ':' .. bucket end) end
local LATENCIES, FETCHES, PARSES = buckets('latency'), buckets('fetch'), buckets('parse')

function state.heard() return {} end -- sources that a status was noted of, or anything was counted of
function state.ended() return {} end -- leases

-- What a status says of the source that paid for it.
function settling.learn(ctx, one)
  local status, fine, payer, generation = one.status, one.fine, one.payer, one.generation
  if not status then return samples.end_without_sample(ctx, payer, generation, one.answered) end
  ctx.heard[payer] = true
  circuits.note_status(ctx, payer, status)
  if one.slows then
    samples.slow_down(ctx, payer, 0.5, 'status ' .. status)
    if one.hold then
      local held, ends = ctx.circuits[payer].hold, ctx.now + one.hold * 1000000
      circuits.change(ctx, payer).hold = math.max(held, ends)
      -- Those in flight are answered alike: one hold.
      if held <= ctx.now or ends > held + 5000000 then
        report.note_incident(ctx, payer, 'held', string.format('status %s, Retry-After: %.0f s', status, one.hold), 'held')
      end
    end
  end
  if one.latency then
    local micros = math.floor(one.latency * 1000000)
    statistics.note(ctx, payer, 'answers', 1)
    statistics.note(ctx, payer, 'latency_us', micros)
    statistics.note(ctx, '', LATENCIES(one.latency_bucket), 1)
    if ctx.A.latency_backoff then samples.note_latency(ctx, payer, micros) end
  end
  if one.fetch_s then
    statistics.note(ctx, '', FETCHES(one.fetch_bucket), 1)
    statistics.note(ctx, '', 'fetch_us', math.floor(one.fetch_s * 1000000))
    samples.note_fetch(ctx, payer, one.fetch_bucket)
  end
  if fine == nil then return samples.end_without_sample(ctx, payer, generation, one.answered) end
  if one.host then windows.note_host(ctx, payer, one.host, fine) end
  samples.sample(ctx, payer, generation, fine)
end

-- What the report of the source says of this end.
function settling.report(ctx, one)
  local sent, status, payer = one.requested, one.status, one.payer
  if sent then
    report.note_request(ctx, payer, unpack(sent))
  elseif status and not status:find('^%d') then
    report.note_kind(ctx, payer, '-' .. status, 1)
  end
  if one.forbidden then report.note_kind(ctx, payer, one.forbidden, 1) end
end

-- Gives a request back.
function settling.give_back(ctx, one, own)
  local request = {entry = one.entry, source = own, micros = math.floor((one.delay or 0) * 1000000), stray = one.stray}
  if one.domain then request.source, request.domain = one.name, one.domain end
  if exclusions.has(ctx, own) or exclusions.has_request(ctx, belonging.source_of(ctx, request.source, request.domain), one.entry) then
    return exclusions.drop(ctx, own, 'excluded', {one.entry})
  end
  shards.take_in(ctx, request, one.id, one.payer)
end

-- A source whose slots were missed, with many others' in the same moment, waits for none of its intervals in vain, and
-- comes to stand apart from them. Not where the rate was lowered since: see renew.lua.
function settling.return_slot(ctx, payer, slot, rate)
  local last, interval = ctx.slots[payer], rates.interval_of(due_index.effective_rate(ctx, payer))
  if last and interval and due_index.effective_rate(ctx, payer) >= rate and math.abs(last - slot - interval) < 100 then
    slots.set(ctx, payer, slot)
  end
  ctx.touched[payer] = true
end

-- Does with the request of a lease what its end says.
function settling.end_request(ctx, one, source)
  if one.event then
    for _, event in ipairs({one.event, unpack(one.more_events or {})}) do
      redis.call('XADD', ctx.tag .. ':' .. event[1], '*', 'event', event[2])
    end
  elseif one.dead then
    dead_letters.add(ctx, 'entry', one.entry, source, one.dead, queues.deliveries_of(one.entry), one.refusal, one.image, one.attempt)
  elseif not one.done then
    settling.give_back(ctx, one, source)
  end
end

-- Makes a dead letter of a request whose end has met what nobody has foreseen.
function settling.bury(ctx, entry, source, problem)
  local reason = 'internal fault: ' .. (type(problem) == 'table' and problem.err or tostring(problem))
  dead_letters.add(ctx, 'entry', entry, source, reason, queues.deliveries_of(entry))
  statistics.note(ctx, source, 'failed', 1)
  ctx.heard[source] = true
end

-- Notes what else follows from the end of a lease.
function settling.note(ctx, one, source)
  local payer = one.payer
  settling.learn(ctx, one)
  settling.report(ctx, one)
  for name, number in pairs(one.counts or {}) do
    ctx.heard[source] = true
    statistics.note(ctx, source, name, number)
  end
  if one.parse_s then
    statistics.note(ctx, '', PARSES(one.parse_bucket), 1)
    statistics.note(ctx, '', 'parse_us', math.floor(one.parse_s * 1000000))
  end
  if one.revisit then
    revisits.note(ctx, source, one.revisit.digest, one.revisit.entry, math.floor(one.revisit.interval * 1000000))
  end
  if one.unsent then
    pace.undo(ctx, payer, one.unsent)
    ctx.touched[payer] = true
  end
  if one.unused then settling.return_slot(ctx, payer, one.unused[1], one.unused[2]) end
end

-- Finds out which leases are there still, and who has paid for each; looks at all these sources at once.
function settling.look_up(ctx, leases, settlements)
  local ids, names, chosen = {}, {}, {}
  for index, one in ipairs(settlements) do
    ids[index] = one.id
    local generation, payer = grants.parts_of(one.id)
    one.generation, one.payer = generation, payer
    if payer and not chosen[payer] then
      chosen[payer] = true
      names[#names + 1] = payer
    end
  end
  for _, field in ipairs({'halted', 'circuits', 'rules_of', 'windows'}) do look_up(ctx, field, names) end
  return read_all('HMGET', leases, ids)
end

at_end('ended', function(ctx)
  local recent = {}
  write_all('HDEL', ctx.K.leases_of .. ctx.A.worker, ctx.ended)
  queues.count(ctx, 'outstanding', -#ctx.ended)
  for source in pairs(ctx.heard) do recent[source] = ctx.now end
  write_scores(ctx.K.active, recent)
end)

-- Ends leases. For each, all or nothing: its outcome, its event, counts and status, what it says about the
-- source, and the end of the lease.
--
-- A: worker; settlements, each the fields of Settlement (state/calls/frontier.py) that are set, and in which bucket
--    `latency`, `fetch_s` and `parse_s` are; high_water; dead_maxlen (of refusals kept); refuse_unknown; latency_backoff
--    (whether slow answers slow a source down).
-- Reply: {a list of 1 (settled) and 0 (the lease was gone: nothing was emitted or counted), the sources among
--    those that paid to which nothing may go out now}
--
-- What comes to a source from another one, by a redirect or because it belongs there, is queued as far as that source's window
-- goes: the rest goes to its overflow. What comes to a source of another shard waits for that one here (the shards).
--
-- A lease that is gone was settled before, or given to another worker after this one's heartbeat lapsed. Should one meet what
-- nobody has foreseen, its request is a dead letter if nothing has become of it yet. Those before it have ended, and
-- those after it are still there.
-- What trips a circuit stops it in this very call: nothing is granted afterwards.
register('settle', function(ctx, K, A)
  local reply, gone, held_back = {}, {}, {}
  local held = settling.look_up(ctx, K.leases_of .. A.worker, A.settlements)
  for index, one in ipairs(A.settlements) do
    local is_held = held[index] and not gone[one.id]
    reply[index] = is_held and 1 or 0
    if is_held then
      local source = one.source or one.payer
      local is_ended, problem = pcall(settling.end_request, ctx, one, source)
      if not is_ended then settling.bury(ctx, held[index], source, problem) end
      ctx.ended[#ctx.ended + 1], gone[one.id] = one.id, true
      if not is_ended then error(problem, 0) end
      settling.note(ctx, one, source)
    end
  end
  for payer in pairs(ctx.heard) do
    if due_index.held_until(ctx, payer) > 0 then held_back[#held_back + 1] = payer end
  end
  return {reply, held_back}
end, {'allow-oom'})
