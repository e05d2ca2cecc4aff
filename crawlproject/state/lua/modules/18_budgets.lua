-- Budgets: how many links found on pages each source may admit.
--
-- A: budget: {base, per_page, most, hosts}, or nil: there is none. A source may admit `base` links and `per_page` more for
--    each good page of it, `most` at most; a quarter of that may be poor ones, those of priority 0. A good page is counted when
--    its lease ends (settle.lua), as `good_pages`. Links to further hosts than `hosts` below a domain are over it.
--
-- Of what good pages have earned a call takes a sixteenth, but in any case as many links as one page earns. Otherwise, of
-- several pages under way, the first would take what all have earned, and on a site where each leads to fifty new ones its
-- links into the trap would keep out the real ones of the others.
--
-- The ledger says what of its budget each source has used.
-- A line is `links poor`, or `links poor sitemaps`: how many links found on pages it has admitted, how many of them are poor
-- ones, and how many sitemaps it has led to.
local budgets = {}

local EARNED_PARTS = 16
function budgets.ledger_in(line)
  local all, poor, sitemaps = (line or ''):match('^(%d+) (%d+) ?(%d*)$')
  return tonumber(all) or 0, tonumber(poor) or 0, tonumber(sitemaps) or 0
end

function budgets.ledger_line(all, poor, sitemaps)
  return text(all) .. ' ' .. text(poor) .. (sitemaps > 0 and ' ' .. text(sitemaps) or '')
end

-- source -> its ledger: links admitted, poor ones, sitemaps it led to
function state.admitted_of() return {} end
function state.poor_of() return {} end
function state.sitemaps_of() return {} end
-- source -> its budget, where it was asked for
function state.allowed_of() return {} end
-- source -> how many it may have admitted at the end of this call, where it is beyond the base
function state.share_ends() return {} end
-- source -> {host -> whether it counts already}
function state.hosts_of_source() return {} end
-- source -> true
function state.changed_budgets() return {} end

function budgets.look_up(ctx, sources)
  for index, line in ipairs(read_all('HMGET', ctx.K.ledger, sources)) do
    local source = sources[index]
    ctx.admitted_of[source], ctx.poor_of[source], ctx.sitemaps_of[source] = budgets.ledger_in(line)
  end
end

-- The budget of a source; its pages are only looked at where the base does not reach.
function budgets.of(ctx, source)
  local limits = ctx.A.budget
  local needed = math.max(ctx.admitted_of[source], 4 * ctx.poor_of[source])
  if needed < limits.base then return math.min(limits.base, limits.most) end
  if not ctx.allowed_of[source] then
    local good = statistics.counts_of(ctx, source).good_pages or 0
    ctx.allowed_of[source] = math.min(limits.base + limits.per_page * good, limits.most)
  end
  return ctx.allowed_of[source]
end

function budgets.is_over(ctx, source, rank)
  if not ctx.A.budget then return false end
  local budget = budgets.of(ctx, source)
  return ctx.admitted_of[source] >= budget or rank == 1 and ctx.poor_of[source] >= math.floor(budget / 4)
end

-- Whether this call has taken its share of what the pages of a source have earned.
function budgets.is_share_taken(ctx, source)
  local admitted = ctx.admitted_of[source]
  if not ctx.A.budget or admitted < ctx.A.budget.base then return false end
  if not ctx.share_ends[source] then
    local left = budgets.of(ctx, source) - admitted
    ctx.share_ends[source] = admitted + math.max(ctx.A.budget.per_page, math.ceil(left / EARNED_PARTS))
  end
  return admitted >= ctx.share_ends[source]
end

-- Whether a host would be one too many below the domain of a source.
function budgets.is_host_beyond(ctx, source, host)
  if not ctx.A.budget or not host or host == '' then return false end
  local known = ctx.hosts_of_source[source]
  if not known then
    known = {}
    ctx.hosts_of_source[source] = known
  end
  if known[host] == nil then
    local key = ctx.K.found_hosts_of .. source
    known[host] = redis.call('SISMEMBER', key, host) == 1
    if not known[host] and redis.call('SCARD', key) < ctx.A.budget.hosts then known[host] = 0 end
  end
  return known[host] == false
end

function budgets.spend(ctx, source, rank, host)
  ctx.admitted_of[source] = ctx.admitted_of[source] + 1
  if rank == 1 then ctx.poor_of[source] = ctx.poor_of[source] + 1 end
  ctx.changed_budgets[source] = true
  local known = ctx.hosts_of_source[source]
  if known and known[host] == 0 then
    redis.call('SADD', ctx.K.found_hosts_of .. source, host)
    known[host] = true
  end
end

-- Notes that a source has led to one more sitemap.
function budgets.note_sitemap(ctx, source)
  ctx.sitemaps_of[source] = ctx.sitemaps_of[source] + 1
  ctx.changed_budgets[source] = true
end

-- 0, 1 (no more poor links) or 2 (nor any other).
function budgets.state_of(ctx, source)
  return budgets.is_over(ctx, source, 2) and 2 or budgets.is_over(ctx, source, 1) and 1 or 0
end

function budgets.save(ctx)
  local fields = {}
  for source in pairs(ctx.changed_budgets) do
    fields[#fields + 1] = source
    fields[#fields + 1] = budgets.ledger_line(ctx.admitted_of[source], ctx.poor_of[source], ctx.sitemaps_of[source])
  end
  if #fields > 0 then redis.call('HSET', ctx.K.ledger, unpack(fields)) end
end
