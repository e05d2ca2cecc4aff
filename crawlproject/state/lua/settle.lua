-- Ends leases. For each, all or nothing: its outcome, its event, counts and status, what it says about the
-- source, and the end of the lease.
--
-- A: worker; min_rate; circuit; refuse_unknown; strain (whether slow answers slow a source down); settlements, a list of
--    {id, source, counts (name -> n), status, fine, latency (us), bucket (of the latency, from 0), throttled,
--    hold (us)} with one of
--    {stream, event}                     done: `event` goes to that stream (its position in A.streams)
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
require_type(leases, 'hash')
for _, stream in ipairs(A.streams) do require_type(stream, 'stream') end

local reply, ended, touched, counts, buckets, looked_at = {}, 0, {}, {}, {}, {}

local function count(name, source, number)
  counts[name] = counts[name] or {}
  counts[name][source] = (counts[name][source] or 0) + number
end

local function learn(settlement)
  local _, generation, payer = parts_of(settlement.id)
  if not payer then return end
  if not settlement.status then
    returned(payer, generation, settlement.answered)
    return
  end
  if not looked_at[payer] and statuses_deleted(payer) then
    local was = circuit_of(payer).state
    local kind = was == 'halted' and 'permanent' or was ~= 'closed' and 'temporary' or nil
    close_circuit(payer, kind, 'an operator deleted the statuses', true)
  end
  looked_at[payer] = true
  if attempt('LPUSH', K.statuses_of .. payer, settlement.status) then
    redis.call('LTRIM', K.statuses_of .. payer, 0, 49)
  end
  local standing = circuit_of(payer)
  if standing.noted == 0 and (settlement.throttled or standing.state ~= 'closed' or standing.factor < 1) then
    change(payer).noted = 1
  end
  if settlement.throttled then
    slow_down(payer, 0.5, 'status ' .. settlement.status)
    if settlement.hold then
      local circuit = change(payer)
      circuit.hold = math.max(circuit.hold, now + settlement.hold)
    end
  end
  if settlement.latency then
    count('answers', payer, 1)
    count('latency_us', payer, settlement.latency)
    buckets[settlement.bucket] = (buckets[settlement.bucket] or 0) + 1
    if A.strain then note_latency(payer, settlement.latency) end
  end
  if settlement.fine == nil then
    returned(payer, generation, settlement.answered)
  else
    sample(payer, generation, settlement.fine)
  end
end

for index, settlement in ipairs(A.settlements) do
  reply[index] = redis.call('HDEL', leases, settlement.id)
  if reply[index] == 1 then
    if settlement.stream then
      redis.call('XADD', A.streams[settlement.stream], '*', 'event', settlement.event)
      ended = ended + 1
    elseif settlement.dead then
      bury('entry', settlement.entry, settlement.source, settlement.dead, settlement.entry:byte(2) or 0)
      if parts_of(settlement.id) then ended = ended + 1 end -- what we did not lease we did not count
    else
      local source = settlement.domain and source_of_domain(settlement.domain) or settlement.source
      if refused(source) then
        bury('entry', settlement.entry, source, 'unknown source: ' .. source, settlement.entry:byte(2) or 0)
        ended = ended + 1
      else
        introduce(source)
        local kept_there
        if settlement.delay > 0 then
          kept_there = delay(source, settlement.entry, settlement.id, settlement.delay)
        else
          kept_there = put_back(source, settlement.entry)
        end
        if kept_there then touched[source] = true else ended = ended + 1 end
      end
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
save_windows()
save_circuits()
local held_back = {}
for payer in pairs(looked_at) do
  if held_until(payer) > 0 then held_back[#held_back + 1] = payer end
end
return {reply, held_back}
