-- Admits the links that were found on a page: counts their sources' budgets, dedupes them, and stores what is new, all
-- at once.
--
-- A: high_water; overflow_maxlen (most requests in all overflows); overflow_stored (true: they are spilled to a store, are
--    that many with those that are there, and in Redis twice `overflow_tail` while it is down); most_outstanding (from so
--    many on nothing is admitted; none: no such bound); refuse_unknown; min_rate; budget (see budget.lua);
--    sitemaps ({source, most}: the links are sitemaps that this source leads to, of which there may be so many; none: they
--    are no sitemaps). The links come in groups, each the fields of LinkGroup
--    (state/scripts/frontier.py), with '' for a host that does not count.
-- Reply: {what became of each link, a letter each: `a`dmitted, `k`nown, over the source's `b`udget, `h`osts of its domain
--    at their bound, `s`itemaps at theirs, `f`ull overflows, the `d`own store's tails full, its source's `q`uota of overflows
--    used, `m`ost outstanding, `r`efused (an unknown source), e`x`cluded; of each
--    group 0, 1 (its source takes no more poor links) or 2 (nor any other)}. {} without a pulse: then no catalogue says
--    whose they are. With several shards: `o`, on its way to the one that its source is in; `w`, the list for that is full.
--
-- A call that is repeated admits nothing: all of it is known then. The budget stands before the seen filter: what it keeps
-- out leaves no trace, and may come again. Links of the priorities 0 and 1 beyond the window of their source go to its
-- overflow, behind those that wait there. Those of a higher priority (what sitemaps name) have a window of their own, and
-- what is beyond becomes one of priority 1. Sitemaps, of which there is a bounded number, go to its queues.
--
-- What became of links is counted in total, and for each source that has admitted one: those that never will are not noted.
-- Sitemaps beyond their bound the caller counts.
register('discover', function(ctx, K, A)
  local outstanding, overflow, tails, pulse = unpack(redis.call('MGET', K.outstanding, K.overflow, K.spilled, K.pulse))
  outstanding, overflow = tonumber(outstanding or 0), tonumber(overflow or 0)
  tails = overflow - tonumber(tails or 0)
  if not pulse then return {} end
  local sources, payers, names = belonging.attribute(ctx, A.groups)
  due_index.look_up(ctx, payers)
  exclusions.look_up(ctx, names)
  if A.sitemaps then payers[#payers + 1] = A.sitemaps.source end
  budgets.look_up(ctx, payers)

  local RESULTS = {a = 'admitted', k = 'known', b = 'over_budget', h = 'over_budget', f = 'without_room', d = 'without_room', q = 'without_room',
    m = 'without_room', r = 'refused',
    x = 'excluded', w = 'without_room'}
  local letters, closed, counts = {}, {}, {} -- counts: result -> source -> how many links
  local batches, batch_of = {}, {} -- what is to be stored, by list
  local rooms = {} -- queue -> how many more requests its source's window takes of that priority
  local growth = 0 -- of the frontier
  local apart = A.overflow_stored and overflow or tails -- what A.overflow_maxlen bounds
  local apart_of, added_to = {}, {} -- source -> how much of that was its own, where it was asked for; what this call adds
  local is_down = A.overflow_stored and tails >= A.overflow_tail and redis.call('EXISTS', K.spill_fault) == 1

  -- How many more requests of a rank the queues of a source take: none while there are some in its overflow. The lowest ranks
  -- share a window.
  local function room_of(source, rank)
    local keys = queues.keys_of(ctx, source)
    local queue = keys[rank]
    if A.sitemaps then return math.huge end
    if not rooms[queue] then
      local held, apart = 0, false
      for index = rank <= FOUND_RANKS and 1 or rank, math.max(rank, FOUND_RANKS) do
        held = held + redis.call('LLEN', keys[index])
        apart = apart or index >= rank and overflow > 0 and queues.waits_apart(ctx, source, index)
      end
      rooms[queue] = apart and 0 or math.min(queues.window_size(ctx, source) - held, -queues.excess_of(ctx, held, outstanding + growth))
    end
    return rooms[queue]
  end

  -- Why one more request of a source cannot wait apart; nil: it can. A source has a quarter of what the others leave
  -- free, and a few in any case.
  local function full_for(source)
    if is_down and tails >= 2 * A.overflow_tail then return 'd' end
    if apart >= A.overflow_maxlen then return 'f' end
    if 4 * apart < A.overflow_maxlen then return nil end -- no source has so much
    if not apart_of[source] then apart_of[source] = A.overflow_stored and queues.overflow_of(ctx, source) or queues.tail_of(ctx, source) end
    local own, least = apart_of[source] + (added_to[source] or 0), math.max(math.min(math.floor(A.overflow_maxlen / 32), 100), 1)
    return own >= least and 3 * own + apart >= A.overflow_maxlen and 'q' or nil
  end

  local function as_found(entry) return entry:sub(1, 2) .. string.char(FOUND_RANKS - 1) .. entry:sub(4) end

  local function note(source, rank, list, entry)
    local batch = batch_of[list]
    if not batch then
      batch = {source = source, list = list, entries = {}, is_queue = list == queues.keys_of(ctx, source)[rank]}
      batch_of[list], batches[#batches + 1] = batch, batch
    end
    batch.entries[#batch.entries + 1] = entry
  end

  -- What becomes of a link.
  local function judge(source, group, index)
    local name, entry, host = group.source, group.entries[index], group.hosts[index]
    if exclusions.has_request(ctx, source, entry, name) then
      if exclusions.has_host(ctx, naming.host_of(entry)) then budgets.give_up_host(ctx, source, host) end
      return 'x'
    end
    local rank = queues.rank_of(entry)
    if budgets.is_over(ctx, source, rank) or budgets.is_share_taken(ctx, source) then return 'b' end
    if budgets.is_host_beyond(ctx, source, host) then return 'h' end
    if rank > FOUND_RANKS and room_of(source, rank) <= 0 then rank, entry = FOUND_RANKS, as_found(entry) end
    local room = room_of(source, rank)
    local full = room <= 0 and full_for(source)
    if full then return full end
    if A.most_outstanding and outstanding + growth >= A.most_outstanding then return 'm' end
    if A.sitemaps and ctx.sitemaps_of[A.sitemaps.source] >= A.sitemaps.most then return 's' end
    if seen_filter.mark(ctx, group.digests[index], true) == 0 then return 'k' end
    budgets.spend(ctx, source, rank, host)
    if A.sitemaps then budgets.note_sitemap(ctx, A.sitemaps.source) end
    local queue = queues.keys_of(ctx, source)[rank]
    if room > 0 then
      rooms[queue], growth = room - 1, growth + 1
      for below = 1, rank - 1 do
        local other = queues.keys_of(ctx, source)[below]
        if rank <= FOUND_RANKS and rooms[other] then rooms[other] = rooms[other] - 1 end
      end
      note(source, rank, queue, entry)
    else
      tails, apart = tails + 1, apart + 1
      added_to[source] = (added_to[source] or 0) + 1
      note(source, rank, queues.overflow_lists_of(ctx, source)[rank], entry)
    end
    return 'a'
  end

  local function forward(shard, group, index)
    return shards.send(ctx, shard, 'link', {entry = group.entries[index], digest = group.digests[index], host = group.hosts[index],
      source = group.source, domain = group.domain, page = ctx.now, budget = A.budget, most_outstanding = A.most_outstanding,
      sitemaps = A.sitemaps}) and 'o' or 'w'
  end

  for number, group in ipairs(A.groups) do
    local source, name = sources[number], group.source
    local whole = (exclusions.has(ctx, source) or name and exclusions.has(ctx, name)) and 'x' or nil
    if not naming.is_valid(source) or rates.refused(ctx, source) then whole = 'r' end
    local shard = shards.is_elsewhere(ctx, source) and shards.shard_of(ctx, source)
    if shard then whole = nil end
    for index = 1, #group.entries do
      local letter = whole or shard and forward(shard, group, index) or judge(source, group, index)
      letters[#letters + 1] = letter
      if RESULTS[letter] then
        local of_result = counts[RESULTS[letter]] or {}
        counts[RESULTS[letter]] = of_result
        of_result[source] = (of_result[source] or 0) + 1
      end
      if letter == 'a' then rates.register(ctx, source) end
      if letter == 'f' or letter == 'd' or letter == 'q' or letter == 'm' or letter == 'w' then whole = letter end
    end
    closed[number] = whole and 2 or shard and 0 or budgets.state_of(ctx, source)
  end
  seen_filter.save(ctx)

  local touched, queued, waiting = {}, 0, 0
  for _, batch in ipairs(batches) do
    local source, entries = batch.source, batch.entries
    redis.call('RPUSH', batch.list, unpack(entries))
    if batch.is_queue then
      queues.note_queued(ctx, source, entries[1])
      touched[source], queued = true, queued + #entries
    else
      waiting = waiting + #entries
      packs.note_tail(ctx, source, batch.list)
    end
  end
  if queued > 0 then redis.call('INCRBY', K.outstanding, queued) end
  if waiting > 0 then redis.call('INCRBY', K.overflow, waiting) end
  budgets.save(ctx)
  budgets.free_hosts(ctx)
  local totals = {}
  for result, of_sources in pairs(counts) do
    local name, total = 'links_' .. result, 0
    for source, count in pairs(of_sources) do
      total = total + count
      if ctx.admitted_of[source] == 0 then of_sources[source] = nil end
    end
    totals[name] = total
    if next(of_sources) then statistics.add_all(K.counts_of .. name, of_sources) end
  end
  if next(totals) then statistics.add_all(K.totals, totals) end
  due_index.schedule_all(ctx, touched)
  return {table.concat(letters), closed}
end)
