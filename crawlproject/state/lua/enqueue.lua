-- Dedupes and stores a batch of requests, and takes their seeds off this worker's processing list, all at once.
-- needs: domains, dead_letters, queues, rates, seeds, due
-- types: list seeds, hash totals
-- reads: outstanding pulse workers dead rates slots halted
--
-- A: worker; digest (SHA-1 of the seeds on the processing list that the batch stands for, joined by newlines; none:
--    the requests come from elsewhere); high_water; dead_maxlen; refuse_unknown; min_rate; count, of the
--    items, each of which stands at its number in: sources or domains, entries, buckets, members (of a request; the
--    member is its hash within the bucket), again (true: seen or not), dead (of a seed that could not be understood,
--    the reason). The first item stands for the seed taken first.
-- Reply: {admitted, duplicates, dead, deferred, outstanding}, or {} when nothing was done: the seeds are no longer
--    on the processing list (a retry of a call that went through, a worker that lapsed), or they stay there for now,
--    because without a pulse no catalogue says which source is which, or dead letters are at their bound.
--
-- At the high-water mark seeds go back to where they came from; those of a source that holds a quarter of
-- it go to the far end of the list, so that others get through.

local outstanding, pulse = strings(K.outstanding, K.pulse)
outstanding = counter(K.outstanding, outstanding)
local dead_letters = read('stream', 'XLEN', K.dead)
local seeds = {}
if A.digest then
  if not read('zset', 'ZSCORE', K.workers, A.worker) then return {} end
  require_type('list', K.processing_of .. A.worker)
  if not pulse or dead_letters >= A.dead_maxlen then return {} end
  seeds = processing_list(A.worker)
  if redis.sha1hex(table.concat(seeds, '\n')) ~= A.digest then return {} end
end

local sources, names, chosen = {}, {}, {}
for index = 1, A.count do
  local domain = A.domains[index]
  local source = A.sources[index] or domain and source_of_domain(domain)
  sources[index] = source or false
  if source and not chosen[source] then
    chosen[source] = true
    names[#names + 1] = source
  end
end
look_up(names)

local duplicates, dead, returned, far = 0, 0, {}, {}
local batches, batch_of, batched, waiting = {}, {}, {}, {} -- what is to be stored, by queue; numbers of requests by source
local admitted = 0

-- Whether a source holds its share of the frontier; not looked at while all sources together hold less.
local function is_full(source)
  if outstanding + admitted < A.high_water / 4 then return false end
  waiting[source] = waiting[source] or backlog_of(source)
  return waiting[source] + (batched[source] or 0) >= A.high_water / 4
end

local function admit(source, entry)
  local key = key_for(source, entry)
  local batch = batch_of[key]
  if not batch or #batch.entries >= 1000 then
    batch = {source = source, entries = {}}
    batch_of[key], batches[#batches + 1] = batch, batch
  end
  batch.entries[#batch.entries + 1] = entry
  batched[source] = (batched[source] or 0) + 1
  admitted = admitted + 1
end

local function reject(seed, entry, source, reason)
  add_dead_letter(seed and 'seed' or 'entry', seed or entry, source, reason, 0)
  dead = dead + 1
end

for index = 1, A.count do
  local seed, source, entry = seeds[index], sources[index], A.entries[index]
  if A.dead[index] then
    reject(seed, nil, source or '', A.dead[index])
  elseif refused(source) then
    reject(seed, entry, source, 'unknown source: ' .. source)
  elseif seed and outstanding + admitted >= A.high_water then
    returned[#returned + 1] = seed
  elseif seed and is_full(source) then
    far[#far + 1] = seed
  else
    local key = K.seen_of .. A.buckets[index]
    local new = attempt('SADD', key, A.members[index])
    if not new then
      reject(seed, entry, source, wrong(key))
    elseif new == 0 and not A.again[index] then
      duplicates = duplicates + 1
    else
      register_source(source)
      admit(source, entry)
    end
  end
end

local touched = {}
for _, batch in ipairs(batches) do
  if append(batch.source, batch.entries) then
    touched[batch.source] = true
  else
    admitted, dead = admitted - #batch.entries, dead + #batch.entries
  end
end
for index = #returned, 1, -1 do redis.call('RPUSH', K.seeds, returned[index]) end
for _, seed in ipairs(far) do redis.call('LPUSH', K.seeds, seed) end
if A.digest then redis.call('DEL', K.processing_of .. A.worker) end
if admitted > 0 then redis.call('INCRBY', K.outstanding, admitted) end
for name, count in pairs({admitted = admitted, duplicates = duplicates, refused = dead}) do add(K.totals, name, count) end
schedule_all(touched)
return {admitted, duplicates, dead, #returned + #far, outstanding + admitted}
