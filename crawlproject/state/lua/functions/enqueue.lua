-- Dedupes and stores a batch of requests, and takes their seeds off this worker's processing list, all at once.
--
-- A: worker; digest (SHA-1 of the seeds on the processing list that the batch stands for, joined by newlines; none:
--    the requests come from elsewhere); high_water; overflow_maxlen; dead_maxlen; refuse_unknown; items, each with the
--    fields of NewRequest or Rejected (state/calls/frontier.py) that are set. The first one stands for the seed taken first.
-- Reply: {admitted, duplicates, dead, returned, excluded, forwarded, unstored}, or {} when nothing was done: the
--    seeds are no longer on the processing list (a retry of a call that went through, a worker that lapsed), or all stays
--    for now where it is, because without a pulse no catalogue says which source is which, or dead letters are at their
--    bound (seeds).
--
-- What belongs to another shard waits for that one here (the shards). Is the list full, seeds go back to where they came
-- from, and `unstored` has the numbers of other items, which are to come again. Between shards that know different catalogues a
-- seed goes to and fro.
--
-- What is excluded is counted, and that is all: it is neither a dead letter nor seen.
--
-- A.overflow_maxlen bounds what is in Redis: not what was spilled to the store.
--
-- What is beyond its source's window goes to the source's overflow (see queues.lua). Seeds go back to where they came from, in
-- order: at the high-water mark those for a queue, and those for an overflow when all overflows together are at their bound.
register('enqueue', function(ctx, K, A)
  if redis.call('EXISTS', K.pulse) == 0 then return {} end
  local tails, seeds = queues.in_tails(ctx), {}
  if A.digest then
    if not redis.call('ZSCORE', K.workers, A.worker) or dead_letters.are_at_bound(ctx) then return {} end
    seeds = seed_list.in_hand(ctx, A.worker)
    if redis.sha1hex(table.concat(seeds, '\n')) ~= A.digest then return {} end
  end

  local sources, payers, names = belonging.attribute(ctx, A.items)
  due_index.look_up(ctx, payers)
  exclusions.look_up(ctx, names)

  local admitted, duplicates, dead, returned, excluded_of = 0, 0, 0, {}, {}
  local forwarded, unstored = 0, {}

  local function reject(seed, entry, source, reason)
    dead_letters.add(ctx, seed and 'seed' or 'entry', seed or entry, source, reason, 0)
    dead = dead + 1
  end

  -- Has an item wait for the shard of its source.
  local function forward(seed, item, shard, index)
    if shards.send(ctx, shard, seed and 'seed' or 'new', seed and {seed = seed} or item) then
      forwarded = forwarded + 1
    elseif seed then
      returned[#returned + 1] = seed
    else
      unstored[#unstored + 1] = index
    end
  end

  for index, item in ipairs(A.items) do
    local seed, source, name, entry = seeds[index], sources[index], item.source, item.entry
    local unknown = name and rates.refused(ctx, name) and name or source and rates.refused(ctx, source) and source
    if item.reason then
      reject(seed, nil, source or '', item.reason)
    elseif source and shards.is_elsewhere(ctx, source) then
      forward(seed, item, shards.shard_of(ctx, source), index)
    elseif exclusions.has_request(ctx, source, entry, name) then
      excluded_of[source] = (excluded_of[source] or 0) + 1
    elseif unknown then
      reject(seed, entry, unknown, 'unknown source: ' .. unknown)
    else
      local is_queued = queues.takes(ctx, source, queues.rank_of(entry))
      local has_room = is_queued and ctx.counters.outstanding + ctx.added.queued < A.high_water
        or not is_queued and tails + ctx.added.waiting < A.overflow_maxlen
      if seed and not has_room then
        returned[#returned + 1] = seed
      elseif seen_filter.admits(ctx, item) then
        rates.register(ctx, source)
        queues.add(ctx, source, entry, is_queued)
        admitted = admitted + 1
      else
        duplicates = duplicates + 1
      end
    end
  end

  for index = #returned, 1, -1 do redis.call('RPUSH', K.seeds, returned[index]) end
  if A.digest then redis.call('DEL', K.processing_of .. A.worker) end
  for name, count in pairs({admitted = admitted, duplicates = duplicates, refused = dead}) do statistics.note(ctx, '', name, count) end
  local dropped = 0
  for source, count in pairs(excluded_of) do
    dropped = dropped + count
    statistics.note(ctx, source, 'excluded', count)
  end
  return {admitted, duplicates, dead, #returned, dropped, forwarded, unstored}
end)
