-- Exclusions: sources and domains that nothing goes out to, and what becomes of the requests for them.
--
-- A name in K.excluded stands for the source of that name, and, as a domain, for that host and all hosts below it. A name
-- without a dot is no domain that others are below: "museum" is a source, not all of .museum. It stands for seeds that
-- name it, too, whatever source their requests belong to.
--
-- What is dropped leaves the frontier and the seen filter at once, and is counted: its seed is crawled when it is fed again.
local exclusions = {}

-- Nearly always there are none, and nothing more is looked at.
function state.has_exclusions(ctx) return redis.call('EXISTS', ctx.K.excluded) == 1 end

-- name -> whether it is excluded
reads('excluded', function(ctx, names) return members_of(ctx.K.excluded, names) end)

-- Looks at several names at once.
function exclusions.look_up(ctx, names)
  if ctx.has_exclusions then look_up(ctx, 'excluded', names) end
end

function exclusions.has(ctx, name) return ctx.has_exclusions and ctx.excluded[name] end

function exclusions.has_host(ctx, host)
  if host == '' or not ctx.has_exclusions then return false end
  local domain = host
  repeat
    if exclusions.has(ctx, domain) then return true end
    domain = domain:match('^[^.]*%.(.+)$')
  until not domain or not domain:find('.', 1, true)
  return false
end

-- Whether all of the `domains` that a row of the catalogue binds its source to are excluded; blanks stand between them.
function exclusions.has_all(ctx, domains)
  if not ctx.has_exclusions or not domains or domains == '' then return false end
  for domain in domains:gmatch('%S+') do
    if not exclusions.has_host(ctx, domain) then return false end
  end
  return true
end

-- Whether a request of a source is excluded: by that source, by where it goes, or by the `name` in its seed, which is
-- looked for where it is not given.
function exclusions.has_request(ctx, source, entry, name)
  if not ctx.has_exclusions then return false end
  if exclusions.has(ctx, source) or exclusions.has_host(ctx, naming.host_of(entry)) then return true end
  name = name or naming.source_in(entry)
  return name ~= nil and exclusions.has(ctx, name)
end

-- What is said of an excluded name: `by` and `time`, where an operator has excluded it, and the `reason`; the comment in its line of a
-- `file`.
function exclusions.said_of(ctx, name)
  return cjson.decode(redis.call('HGET', ctx.K.excluded_by, name) or '{}')
end

-- Notes in the audit trail that an operator has excluded a name (`what`: 'excluded'), or included it again ('included').
function exclusions.note(ctx, what, name, operator, reason)
  local msg = name .. (what == 'excluded' and ' is excluded' or ' is included again')
  audit.note(ctx, 'crawl_' .. what, {source = name, type = 'operator', msg = msg, by = 'operator, ' .. operator, reason = reason})
end

-- The same of names that CRAWL_EXCLUDE has, or has no more.
function exclusions.note_file(ctx, what, names)
  if #names == 0 then return end
  local shown = table.concat(names, ', ', 1, math.min(#names, 10)) .. (#names > 10 and ', ...' or '')
  local msg = string.format('CRAWL_EXCLUDE names %d %s: %s', #names, what == 'excluded' and 'more' or 'no more', shown)
  local source = #names == 1 and names[1] or ''
  audit.note(ctx, 'crawl_' .. what, {source = source, type = 'file', msg = msg, by = audit.worker_at_work(ctx)})
end

-- Drops requests that were taken out of the frontier; they count as `excluded`, or `purged`.
function exclusions.drop(ctx, source, what, entries)
  if #entries == 0 then return end
  seen_filter.forget(ctx, entries)
  statistics.note(ctx, source, what, #entries)
end
