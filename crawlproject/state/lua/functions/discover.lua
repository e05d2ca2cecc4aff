-- Admits the links that were found on pages: counts their sources' budgets, dedupes them, and stores what is new, all
-- at once.
--
-- A: high_water; overflow_maxlen (most requests in all overflows, but for what was spilled); most_outstanding (from so
--    many on nothing is admitted; none: no such bound); refuse_unknown; min_rate; budget (see the budgets); pages, each the
--    fields of Finds (state/calls/frontier.py): its text (see the texts; none: nothing is noted); its links in groups, each the
--    fields of LinkGroup, with '' for a host that does not count; sitemaps ({source, most}: the links are sitemaps that this
--    source leads to, of which there may be so many; none: they are no sitemaps).
-- Reply: for each page what became of each link, a letter each: `a`dmitted, `k`nown, over the source's `b`udget (or hosts of its domain
--    at their bound), `s`itemaps at theirs, `w`ithout room, `r`efused (an unknown source), e`x`cluded, or `o`n its way to the shard that
--    its source is in; false where its text was last seen under another address: nothing is admitted.
--    Nil without a pulse: then no catalogue says whose they are.
--
-- A call that is repeated admits nothing: all of it is known then. The budget stands before the seen filter: what it keeps
-- out leaves no trace, and may come again. What is beyond the window of its source goes to its overflow, behind what waits
-- there; links of a higher priority than others (what sitemaps name) as other links, so that no revisit waits behind them.
--
-- What became of links is counted in total, and for each source that has admitted one: those that never will are not noted.
-- Sitemaps beyond their bound the caller counts.
register('discover', function(ctx, K, A)
  if redis.call('EXISTS', K.pulse) == 0 then return nil end
  local tails = queues.in_tails(ctx)
  local replies, pages, groups, leading = {}, {}, {}, {}
  for number, page in ipairs(A.pages) do
    replies[number] = not page.text or texts.note(ctx, page.text)
    if replies[number] then
      pages[#pages + 1] = number
      for _, group in ipairs(page.groups) do groups[#groups + 1] = group end
      if page.sitemaps then leading[#leading + 1] = page.sitemaps.source end
    end
  end
  local _, payers, names = belonging.attribute(ctx, groups)
  due_index.look_up(ctx, payers)
  exclusions.look_up(ctx, names)
  for _, source in ipairs(leading) do payers[#payers + 1] = source end
  look_up(ctx, 'ledgers', payers)

  local RESULTS = {a = 'links_admitted', k = 'links_known', b = 'links_over_budget', w = 'links_without_room', r = 'links_refused',
    x = 'links_excluded'}
  local FOUND_RANK = 2 -- of links
  local own_tails = {} -- source -> how much of the tails was its own, where it was asked for

  -- Whether no more requests of a source may wait in its overflow. A source has a quarter of what the others leave free, and a
  -- few in any case.
  local function full_for(source)
    local all, most = tails + ctx.added.waiting, A.overflow_maxlen
    if all >= most then return true end
    if 4 * all < most then return false end -- no source has so much
    own_tails[source] = own_tails[source] or queues.tail_of(ctx, source)
    local own, least = own_tails[source] + (ctx.added.waiting_of[source] or 0), math.max(math.min(math.floor(most / 32), 100), 1)
    return own >= least and 3 * own + all >= most
  end

  -- What becomes of a link of a page.
  local function judge(source, number, group, index)
    local name, entry, host, sitemaps = group.source, group.entries[index], group.hosts[index], A.pages[number].sitemaps
    if exclusions.has_request(ctx, source, entry, name) then return 'x' end
    local rank = queues.rank_of(entry)
    if budgets.is_over(ctx, source, rank) or budgets.is_share_taken(ctx, source, number) then return 'b' end
    if budgets.is_host_beyond(ctx, source, host) then return 'b' end
    local has_room = queues.takes(ctx, source, rank)
    if rank > FOUND_RANK and not has_room and not sitemaps then
      rank, entry = FOUND_RANK, entry:sub(1, 2) .. string.char(FOUND_RANK - 1) .. entry:sub(4)
      has_room = queues.takes(ctx, source, rank)
    end
    if not has_room and full_for(source) then return 'w' end
    if A.most_outstanding and ctx.counters.outstanding + ctx.added.queued >= A.most_outstanding then return 'w' end
    if sitemaps and ctx.ledgers[sitemaps.source].sitemaps >= sitemaps.most then return 's' end
    if not seen_filter.mark(ctx, group.digests[index]) then return 'k' end
    budgets.spend(ctx, source, rank, host)
    if sitemaps then budgets.note_sitemap(ctx, sitemaps.source) end
    queues.add(ctx, source, entry, has_room)
    return 'a'
  end

  local function forward(shard, number, group, index)
    return shards.send(ctx, shard, 'link', {entry = group.entries[index], digest = group.digests[index], host = group.hosts[index],
      source = group.source, domain = group.domain, page = text(ctx.now) .. '.' .. number, budget = A.budget,
      most_outstanding = A.most_outstanding, sitemaps = A.pages[number].sitemaps}) and 'o' or 'w'
  end

  for _, number in ipairs(pages) do
    local letters = {}
    for _, group in ipairs(A.pages[number].groups) do
      local source, name = belonging.source_of(ctx, group.source, group.domain), group.source
      local whole = (exclusions.has(ctx, source) or name and exclusions.has(ctx, name)) and 'x' or nil
      if not naming.is_valid(source) or rates.refused(ctx, source) then whole = 'r' end
      local shard = shards.is_elsewhere(ctx, source) and shards.shard_of(ctx, source)
      if shard then whole = nil end
      for index = 1, #group.entries do
        local letter = whole or shard and forward(shard, number, group, index) or judge(source, number, group, index)
        letters[#letters + 1] = letter
        if RESULTS[letter] then statistics.note(ctx, ctx.ledgers[source].all > 0 and source or '', RESULTS[letter], 1) end
        if letter == 'a' then rates.register(ctx, source) end
        if letter == 'w' then whole = letter end
      end
    end
    replies[number] = table.concat(letters)
  end
  return replies
end)
