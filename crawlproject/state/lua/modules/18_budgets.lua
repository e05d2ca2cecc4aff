-- Budgets: how many links found on pages each source may admit.
--
-- A: budget: {base, per_page, most, hosts}, or nil: there is none. A source may admit `base` links and `per_page` more for
--    each good page of it, `most` at most; a quarter of that may be poor ones, those of priority 0. A good page is counted when
--    its lease ends (settle.lua), as `good_pages`. Links to further hosts than `hosts` below a domain are over it.
--
-- Of what good pages have earned a page takes a sixteenth, but in any case as many links as one page earns. Otherwise, of
-- several pages under way, the first would take what all have earned, and on a site where each leads to fifty new ones its
-- links into the trap would keep out the real ones of the others.
--
-- The ledger says what of its budget each source has used.
-- A line is `links poor`, or `links poor sitemaps`: how many links found on pages it has admitted, how many of them are poor
-- ones, and how many sitemaps it has led to.
local budgets = {}

local EARNED_PARTS = 16

-- Source -> what it has used: `all` links, `poor` ones, `sitemaps`. And, where that was asked for: its `budget`; the number of links at
-- which the share of a `page` of the call `ends`; which of its `hosts` count already (true), do not yet (0), or would be one too many
-- (false).
reads('ledgers', function(ctx, sources)
  local found = read_all('HMGET', ctx.K.ledger, sources)
  for index, line in ipairs(found) do
    local all, poor, sitemaps = (line or ''):match('^(%d+) (%d+) ?(%d*)$')
    found[index] = {all = tonumber(all) or 0, poor = tonumber(poor) or 0, sitemaps = tonumber(sitemaps) or 0, hosts = {}}
  end
  return found
end)

-- The budget of a source; its pages are only looked at where the base does not reach.
function budgets.of(ctx, source)
  local limits, ledger = ctx.A.budget, ctx.ledgers[source]
  if math.max(ledger.all, 4 * ledger.poor) < limits.base then return math.min(limits.base, limits.most) end
  if not ledger.budget then
    local good = statistics.counts_of(ctx, source).good_pages or 0
    ledger.budget = math.min(limits.base + limits.per_page * good, limits.most)
  end
  return ledger.budget
end

function budgets.is_over(ctx, source, rank)
  if not ctx.A.budget then return false end
  local ledger, budget = ctx.ledgers[source], budgets.of(ctx, source)
  return ledger.all >= budget or rank == 1 and ledger.poor >= math.floor(budget / 4)
end

-- Whether a page, by its number in this call, has taken its share of what the pages of a source have earned.
function budgets.is_share_taken(ctx, source, page)
  local limits, ledger = ctx.A.budget, ctx.ledgers[source]
  if not limits or ledger.all < limits.base then return false end
  if ledger.page ~= page then
    local left = budgets.of(ctx, source) - ledger.all
    ledger.page, ledger.ends = page, ledger.all + math.max(limits.per_page, math.ceil(left / EARNED_PARTS))
  end
  return ledger.all >= ledger.ends
end

-- Whether a host would be one too many below the domain of a source.
function budgets.is_host_beyond(ctx, source, host)
  if not ctx.A.budget or not host or host == '' then return false end
  local known = ctx.ledgers[source].hosts
  if known[host] == nil then
    local key = ctx.K.found_hosts_of .. source
    known[host] = redis.call('SISMEMBER', key, host) == 1
    if not known[host] and redis.call('SCARD', key) < ctx.A.budget.hosts then known[host] = 0 end
  end
  return known[host] == false
end

function budgets.spend(ctx, source, rank, host)
  local ledger = ctx.ledgers[source]
  ledger.all, ledger.poor, ledger.is_changed = ledger.all + 1, ledger.poor + (rank == 1 and 1 or 0), true
  if ledger.hosts[host] == 0 then
    redis.call('SADD', ctx.K.found_hosts_of .. source, host)
    ledger.hosts[host] = true
  end
end

-- Notes that a source has led to one more sitemap.
function budgets.note_sitemap(ctx, source)
  local ledger = ctx.ledgers[source]
  ledger.sitemaps, ledger.is_changed = ledger.sitemaps + 1, true
end

at_end('ledgers', function(ctx)
  local fields = {}
  for source, ledger in pairs(ctx.ledgers) do -- and `ctx`, which is not changed: see reads()
    if ledger.is_changed then
      local sitemaps = ledger.sitemaps > 0 and ' ' .. text(ledger.sitemaps) or ''
      fields[#fields + 1], fields[#fields + 2] = source, text(ledger.all) .. ' ' .. text(ledger.poor) .. sitemaps
    end
  end
  write_all('HSET', ctx.K.ledger, fields)
end)
