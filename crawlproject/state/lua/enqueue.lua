-- Dedupes and stores a batch of requests, and takes their seeds off this worker's list, all at once.
--
-- A: worker; digest (SHA-1 of the seeds in hand that the batch stands for, joined by newlines; none: the
--    requests come from elsewhere); high_water; dead_maxlen; refuse_unknown; min_rate; items, a list of
--    {entry, bucket, member, again, source | domain}  a request; `member` is its hash within the bucket
--    {dead = reason}                                   a seed that could not be understood
--    The first item stands for the seed taken first.
-- Reply: {admitted, duplicates, dead, deferred, outstanding}, or {} when nothing was done: the seeds are in
--    hand no more (a retry of a call that went through, a worker that lapsed), or they stay there for now,
--    because without a pulse no catalogue says which source is which, or dead letters are at their bound.
--
-- At the high-water mark seeds go back to where they came from; those of a source that holds a quarter of
-- it go to the far end of the list, so that others get through.

require_type(K.seeds, 'list')
local seeds = {}
if A.digest then
  if not redis.call('ZSCORE', K.workers, A.worker) then return {} end
  require_type(K.processing_of .. A.worker, 'list')
  if redis.call('EXISTS', K.pulse) == 0 or redis.call('XLEN', K.dead) >= A.dead_maxlen then return {} end
  seeds = processing_list(A.worker)
  if redis.sha1hex(table.concat(seeds, '\n')) ~= A.digest then return {} end
end

local outstanding = tonumber(redis.call('GET', K.outstanding) or '0')
local admitted, duplicates, dead, returned, far = 0, 0, 0, {}, {}
local touched, counted = {}, {}

for index, item in ipairs(A.items) do
  local seed = seeds[index]
  local source = item.source or (item.domain and source_of_domain(item.domain))
  if item.dead then
    bury('seed', seed, item.source or '', item.dead, 0)
    dead = dead + 1
  elseif refused(source) then
    bury(seed and 'seed' or 'entry', seed or item.entry, source, 'unknown source: ' .. source, 0)
    dead = dead + 1
  else
    counted[source] = counted[source] or held(source)
    if seed and outstanding >= A.high_water then
      returned[#returned + 1] = seed
    elseif seed and counted[source] >= A.high_water / 4 then
      far[#far + 1] = seed
    else
      local new = attempt('SADD', K.seen_of .. item.bucket, item.member)
      if not new then
        bury(seed and 'seed' or 'entry', seed or item.entry, source, wrong(K.seen_of .. item.bucket), 0)
        dead = dead + 1
      elseif new == 0 and not item.again then
        duplicates = duplicates + 1
      else
        introduce(source)
        if append(source, item.entry) then
          touched[source] = true
          counted[source] = counted[source] + 1
          outstanding, admitted = outstanding + 1, admitted + 1
        else
          dead = dead + 1
        end
      end
    end
  end
end

for index = #returned, 1, -1 do redis.call('RPUSH', K.seeds, returned[index]) end
for _, seed in ipairs(far) do redis.call('LPUSH', K.seeds, seed) end
if A.digest then redis.call('DEL', K.processing_of .. A.worker) end
if admitted > 0 then redis.call('INCRBY', K.outstanding, admitted) end
for name, count in pairs({admitted = admitted, duplicates = duplicates, refused = dead}) do add(K.totals, name, count) end
schedule_all(touched)
return {admitted, duplicates, dead, #returned + #far, outstanding}
