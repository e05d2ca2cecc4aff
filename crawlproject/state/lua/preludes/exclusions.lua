-- Exclusions: sources and domains that nothing goes out to, and what becomes of the requests for them.
-- needs: dead_letters, hosts, names, ledger
-- reads: excluded dropped ledger
--
-- A name in K.excluded stands for the source of that name, and, as a domain, for that host and all hosts below it. A name
-- without a dot is no domain that others are below: "museum" is a source, not all of .museum. It stands for seeds that
-- name it, too, whatever source their requests belong to.
--
-- What is dropped leaves the frontier at once, and is counted. It stays in K.dropped until its place in the seen filter has
-- been given up (forget_dropped.lua), which needs a hash that Lua has not got: its seed is crawled when it is fed again.

local is_any_excluded -- whether there are exclusions, where that is known
local excluded = {} -- name -> whether it is excluded, where that is known

-- To be called before the first write. Nearly always there are none, and nothing more is looked at.
local function has_exclusions()
  if is_any_excluded == nil then
    is_any_excluded = redis.call('EXISTS', K.excluded) == 1
    if is_any_excluded then
      require_type('set', K.excluded)
      require_type('list', K.dropped)
    end
  end
  return is_any_excluded
end

-- Looks at several names at once.
local function look_up_excluded(names)
  if not has_exclusions() then return end
  for first = 1, #names, 1000 do
    local last = math.min(first + 999, #names)
    for index, member in ipairs(redis.call('SMISMEMBER', K.excluded, unpack(names, first, last))) do
      excluded[names[first + index - 1]] = member == 1
    end
  end
end

local function is_excluded(name)
  if not has_exclusions() then return false end
  if excluded[name] == nil then excluded[name] = redis.call('SISMEMBER', K.excluded, name) == 1 end
  return excluded[name]
end

local function is_host_excluded(host)
  if host == '' or not has_exclusions() then return false end
  local domain = host
  repeat
    if is_excluded(domain) then return true end
    domain = domain:match('^[^.]*%.(.+)$')
  until not domain or not domain:find('.', 1, true)
  return false
end

-- Whether a request of a source is excluded: by that source, by where it goes, or by the `name` in its seed, which is
-- looked for where it is not given.
local function is_request_excluded(source, entry, name)
  if not has_exclusions() then return false end
  if is_excluded(source) or is_host_excluded(host_of(entry)) then return true end
  name = name or name_in(entry)
  return name ~= nil and is_excluded(name)
end

-- Counts what was dropped of a source, or not even admitted: as `excluded`, or `purged`.
local function count_dropped(source, what, count)
  if source ~= '' then add(K.counts_of .. what, source, count) end
  add(K.totals, what, count)
end

-- Whether a stored request stands for a link that has taken a place in its source's budget and was not fetched yet: found on
-- a page it has a depth, or, an image, what was found of it (frontier/discovery.py). A redirected one was fetched, and so was a
-- page that is looked at again.
local function was_counted(entry)
  if not entry:find('\165depth', 1, true) and not entry:find('\165found', 1, true) then return false end
  local good, request = pcall(cmsgpack.unpack, entry:sub(4))
  local meta = good and type(request) == 'table' and request.meta
  if type(meta) ~= 'table' or meta.redirect_urls or meta.revisit then return false end
  return type(meta.depth) == 'number' and meta.depth > 0 or type(meta.found) == 'table'
end

-- Gives a source's budget back what those of its links took of it that are dropped.
local function refund(source, entries)
  local line = attempt('HGET', K.ledger, source)
  if not line then return end
  local all, poor, sitemaps = ledger_in(line)
  for _, entry in ipairs(entries) do
    if was_counted(entry) then
      all = all - 1
      if entry:byte(3) == 0 then poor = poor - 1 end
    end
  end
  redis.call('HSET', K.ledger, source, ledger_line(math.max(all, 0), math.max(poor, 0), sitemaps))
end

-- Drops requests that were taken out of the frontier.
local function drop(source, what, entries)
  if #entries == 0 then return end
  redis.call('RPUSH', K.dropped, unpack(entries))
  refund(source, entries)
  count_dropped(source, what, #entries)
end

-- Leaves in `entries` those that may go out, and drops the others; returns how many these were.
local function drop_excluded(source, entries)
  if not has_exclusions() then return 0 end
  local gone = {}
  for index = #entries, 1, -1 do
    if is_request_excluded(source, entries[index]) then gone[#gone + 1] = table.remove(entries, index) end
  end
  drop(source, 'excluded', gone)
  return #gone
end
