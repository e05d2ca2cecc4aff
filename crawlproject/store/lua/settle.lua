-- Ends leases. For each, all or nothing: its outcome, its event, counts and status, and the end of the lease.
--
-- A: worker; min_rate; settlements, a list of {id, counts (name -> n), status} with one of
--    {stream, event}                     done: `event` goes to that stream (its position in A.streams)
--    {dead = reason, entry}              a dead letter
--    {entry, source | domain, delay}     back to that source's queue: after `delay` us, or, at 0, to its head
-- Reply: a list of 1 (settled) and 0 (the lease was gone: nothing was emitted or counted).
--
-- A lease that is gone was settled before, or given to another worker after this one's heartbeat lapsed.

local leases = K.leases_of .. A.worker
require_type(leases, 'hash')
require_type(K.outstanding, 'string')
require_type(K.dead, 'stream')
for _, stream in ipairs(A.streams) do require_type(stream, 'stream') end
for _, settlement in ipairs(A.settlements) do
  require_type(K.statuses_of .. (settlement.id:match('^%d+:(.*)$') or ''), 'list')
  require_type(K.delayed_of .. settlement.source, 'zset')
  for name in pairs(settlement.counts) do require_type(K.counts_of .. name, 'hash') end
end

local reply, ended, touched, counts = {}, 0, {}, {}

for index, settlement in ipairs(A.settlements) do
  reply[index] = redis.call('HDEL', leases, settlement.id)
  if reply[index] == 1 then
    local payer = settlement.id:match('^%d+:(.*)$')
    if settlement.stream then
      redis.call('XADD', A.streams[settlement.stream], '*', 'event', settlement.event)
      ended = ended + 1
    elseif settlement.dead then
      bury('entry', settlement.entry, settlement.source, settlement.dead, settlement.entry:byte(2) or 0)
      ended = ended + 1
    else
      local source = settlement.domain and source_of_domain(settlement.domain) or settlement.source
      introduce(source)
      if settlement.delay > 0 then
        delay(source, settlement.entry, settlement.id, settlement.delay)
      else
        put_back(source, settlement.entry)
      end
      touched[source] = true
    end
    for name, count in pairs(settlement.counts) do
      counts[name] = counts[name] or {}
      counts[name][settlement.source] = (counts[name][settlement.source] or 0) + count
    end
    if settlement.status then
      redis.call('LPUSH', K.statuses_of .. payer, settlement.status)
      redis.call('LTRIM', K.statuses_of .. payer, 0, 49)
    end
  end
end

if ended > 0 then redis.call('DECRBY', K.outstanding, ended) end
for name, sources in pairs(counts) do
  for source, count in pairs(sources) do redis.call('HINCRBY', K.counts_of .. name, source, text(count)) end
end
schedule_all(touched)
return reply
