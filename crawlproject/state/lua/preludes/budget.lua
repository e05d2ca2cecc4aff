-- Budgets: how many links found on pages each source may admit.
-- needs: ledger
-- reads: ledger
-- types: hash counts_at_rest
--
-- A: budget: {base, per_page, most, hosts}, or nil: there is none. A source may admit `base` links and `per_page` more for
--    each good page of it, `most` at most; a quarter of that may be poor ones, those of priority 0. A good page is counted when
--    its lease ends (settle.lua), as `good_pages`. Links to further hosts than `hosts` below a domain are over it.
--
-- Of what good pages have earned a call takes a sixteenth, but in any case as many links as one page earns. Otherwise, of
-- several pages under way, the first would take what all have earned, and on a site where each leads to fifty new ones its
-- links into the trap would keep out the real ones of the others.

local EARNED_PARTS = 16
local admitted_of, poor_of, sitemaps_of = {}, {}, {} -- source -> its ledger: links admitted, poor ones, sitemaps it led to
local allowed_of = {} -- source -> its budget, where it was asked for
local share_ends = {} -- source -> how many it may have admitted at the end of this call, where it is beyond the base
local hosts_of_source = {} -- source -> {host -> whether it counts already}
local given_up = {} -- source -> {host -> true}: excluded ones
local changed_budgets = {} -- source -> true

local function look_up_budgets(sources)
  for index, line in ipairs(#sources > 0 and read('hash', 'HMGET', K.ledger, unpack(sources)) or {}) do
    local source = sources[index]
    admitted_of[source], poor_of[source], sitemaps_of[source] = ledger_in(line)
  end
end

-- The good pages of a source; those from before it last rested are counted apart (rest.lua).
local function good_pages_of(source)
  local good = number(attempt('HGET', K.counts_of .. 'good_pages', source) or '', 0) or 0
  local kept = attempt('HGET', K.counts_at_rest, source)
  local fine, counts = pcall(cmsgpack.unpack, kept or '')
  return good + (fine and type(counts) == 'table' and number(counts.good_pages, 0) or 0)
end

-- The budget of a source; its pages are only looked at where the base does not reach.
local function budget_of(source)
  local limits = A.budget
  local needed = math.max(admitted_of[source], 4 * poor_of[source])
  if needed < limits.base then return math.min(limits.base, limits.most) end
  if not allowed_of[source] then
    allowed_of[source] = math.min(limits.base + limits.per_page * good_pages_of(source), limits.most)
  end
  return allowed_of[source]
end

local function is_over_budget(source, rank)
  if not A.budget then return false end
  local budget = budget_of(source)
  return admitted_of[source] >= budget or rank == 1 and poor_of[source] >= math.floor(budget / 4)
end

-- Whether this call has taken its share of what the pages of a source have earned.
local function is_share_taken(source)
  local admitted = admitted_of[source]
  if not A.budget or admitted < A.budget.base then return false end
  if not share_ends[source] then
    local left = budget_of(source) - admitted
    share_ends[source] = admitted + math.max(A.budget.per_page, math.ceil(left / EARNED_PARTS))
  end
  return admitted >= share_ends[source]
end

-- Whether a host would be one too many below the domain of a source.
local function is_host_beyond(source, host)
  if not A.budget or not host or host == '' then return false end
  local known = hosts_of_source[source]
  if not known then
    known = {}
    hosts_of_source[source] = known
  end
  if known[host] == nil then
    local key = K.found_hosts_of .. source
    known[host] = attempt('SISMEMBER', key, host) == 1
    if not known[host] and (attempt('SCARD', key) or 0) < A.budget.hosts then known[host] = 0 end
  end
  return known[host] == false
end

local function spend_budget(source, rank, host)
  admitted_of[source] = admitted_of[source] + 1
  if rank == 1 then poor_of[source] = poor_of[source] + 1 end
  changed_budgets[source] = true
  local known = hosts_of_source[source]
  if known and known[host] == 0 then
    attempt('SADD', K.found_hosts_of .. source, host)
    known[host] = true
  end
end

-- Notes that a host is excluded: it is not to keep its place among those below the domain of a source.
local function give_up_host(source, host)
  if not A.budget or not host or host == '' then return end
  given_up[source] = given_up[source] or {}
  given_up[source][host] = true
end

-- Frees these places; last, for what begins with it goes through when Redis is out of memory.
local function free_hosts()
  for source, hosts in pairs(given_up) do
    for host in pairs(hosts) do attempt('SREM', K.found_hosts_of .. source, host) end
  end
end

-- Notes that a source has led to one more sitemap.
local function note_sitemap(source)
  sitemaps_of[source] = sitemaps_of[source] + 1
  changed_budgets[source] = true
end

-- 0, 1 (no more poor links) or 2 (nor any other).
local function budget_state(source)
  return is_over_budget(source, 2) and 2 or is_over_budget(source, 1) and 1 or 0
end

local function save_budgets()
  local fields = {}
  for source in pairs(changed_budgets) do
    fields[#fields + 1] = source
    fields[#fields + 1] = ledger_line(admitted_of[source], poor_of[source], sitemaps_of[source])
  end
  if #fields > 0 then redis.call('HSET', K.ledger, unpack(fields)) end
end
