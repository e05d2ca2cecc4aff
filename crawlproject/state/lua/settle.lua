-- Ends leases. For each, all or nothing: its outcome, its event, counts and status, what it says about the
-- source, and the end of the lease.
-- needs: domains, leases, samples, due
-- types: stream image_events link_rot_events, hash totals latencies, zset active, counter outstanding
-- reads: rates slots halted options
--
-- A: worker; min_rate; circuit; refuse_unknown; latency_backoff (whether slow answers slow a source down);
--    settlements, a list of {id, source, counts (name -> n), status, fine, latency (us), bucket (of the latency, from
--    0), throttled, hold (us)} with one of
--    {stream, event}                     done: `event` goes to that stream (1: images, 2: link rot)
--    {dead = reason, entry}              a dead letter
--    {entry, source | domain, delay}     back to that source's queue: after `delay` us, or, at 0, to its head
--    `status` is noted for the source that paid, with `fine` (true or false) as a sample of its circuit;
--    without `fine` it says nothing about the source. `throttled`: it asked for patience (429, 503), for
--    `hold` if it said how long. `answered`: the site has answered, by a redirect or an opt-out.
-- Reply: {a list of 1 (settled) and 0 (the lease was gone: nothing was emitted or counted), the sources among
--    those that paid to which nothing may go out now}
--
-- A lease that is gone was settled before, or given to another worker after this one's heartbeat lapsed.
-- What trips a circuit stops it in this very call: nothing is granted afterwards.

local leases = K.leases_of .. A.worker
require_type('hash', leases)
local streams = {K.image_events, K.link_rot_events}

local payers, chosen, ids = {}, {}, {}
for index, settlement in ipairs(A.settlements) do
  ids[index] = settlement.id
  local _, generation, payer = parts_of(settlement.id)
  settlement.generation, settlement.payer = generation, payer
  if payer and not chosen[payer] then
    chosen[payer] = true
    payers[#payers + 1] = payer
  end
end
look_up(payers)
look_up_rules(payers)
look_up_statuses(payers)

local reply, ended, touched, counts, buckets, looked_at = {}, 0, {}, {}, {}, {}

local function count(name, source, number)
  local of_name = counts[name]
  if not of_name then
    of_name = {}
    counts[name] = of_name
  end
  of_name[source] = (of_name[source] or 0) + number
end

local function learn(settlement)
  local payer, generation = settlement.payer, settlement.generation
  if not payer then return end
  if not settlement.status then
    end_without_sample(payer, generation, settlement.answered)
    return
  end
  if not looked_at[payer] and statuses_deleted(payer) then
    local was = circuit_of(payer).state
    local kind = was == 'halted' and 'permanent' or was ~= 'closed' and 'temporary' or nil
    close_circuit(payer, kind, 'an operator deleted the statuses', true)
  end
  looked_at[payer] = true
  note_status(payer, settlement.status)
  local circuit = circuit_of(payer)
  if circuit.noted == 0 and (settlement.throttled or circuit.state ~= 'closed' or circuit.factor < 1) then
    change(payer).noted = 1
  end
  if settlement.throttled then
    slow_down(payer, 0.5, 'status ' .. settlement.status)
    if settlement.hold then change(payer).hold = math.max(circuit.hold, now + settlement.hold) end
  end
  if settlement.latency then
    count('answers', payer, 1)
    count('latency_us', payer, settlement.latency)
    buckets[settlement.bucket] = (buckets[settlement.bucket] or 0) + 1
    if A.latency_backoff then note_latency(payer, settlement.latency) end
  end
  if settlement.fine == nil then
    end_without_sample(payer, generation, settlement.answered)
  else
    sample(payer, generation, settlement.fine)
  end
end

-- First of all, and a write that Redis never denies: the leases end. Who comes twice has its lease once.
local stored = #ids > 0 and redis.call('HMGET', leases, unpack(ids)) or {}
if #ids > 0 then redis.call('HDEL', leases, unpack(ids)) end
local ended_now = {}
for index, settlement in ipairs(A.settlements) do
  reply[index] = stored[index] and not ended_now[settlement.id] and 1 or 0
  ended_now[settlement.id] = true
  if reply[index] == 1 then
    if settlement.stream then
      redis.call('XADD', streams[settlement.stream], '*', 'event', settlement.event)
      ended = ended + 1
    elseif settlement.dead then
      local entry = settlement.entry
      add_dead_letter('entry', entry, settlement.source, settlement.dead, deliveries_of(entry))
      if settlement.payer then ended = ended + 1 end -- a lease that was not granted was not counted
    else
      local source = settlement.domain and source_of_domain(settlement.domain) or settlement.source
      local entry, kept = settlement.entry, false
      if refused(source) then
        add_dead_letter('entry', entry, source, 'unknown source: ' .. source, deliveries_of(entry))
      else
        register_source(source)
        if settlement.delay > 0 then
          kept = delay(source, entry, settlement.id, settlement.delay)
        else
          kept = put_back(source, entry)
        end
      end
      if kept then touched[source] = true else ended = ended + 1 end
    end
    for name, number in pairs(settlement.counts) do count(name, settlement.source, number) end
    learn(settlement)
  end
end

if ended > 0 then redis.call('DECRBY', K.outstanding, ended) end
local active = {}
for name, sources in pairs(counts) do
  local total = 0
  for source, number in pairs(sources) do
    add(K.counts_of .. name, source, number)
    total, active[source] = total + number, true
  end
  add(K.totals, name, total)
end
for bucket, number in pairs(buckets) do add(K.latencies, text(bucket), number) end
local recent = {}
for source in pairs(active) do recent[#recent + 1], recent[#recent + 2] = text(now), source end
if #recent > 0 then redis.call('ZADD', K.active, unpack(recent)) end
for source in pairs(changed) do touched[source] = true end
schedule_all(touched)
save_statuses()
save_windows()
save_circuits()
local held_back = {}
for payer in pairs(looked_at) do
  if held_until(payer) > 0 then held_back[#held_back + 1] = payer end
end
return {reply, held_back}
