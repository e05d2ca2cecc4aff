-- Which source a request belongs to: the one that its seed names, where that is to be believed, else the one that the
-- domain of its URL is of.
--
-- A name is believed
--    for the domains that the catalogue binds it to, and for no other;
--    for any domain, where the catalogue has a row that binds it to none, or an operator has given it a rate. A name that
--    can itself be a domain is not lent to others by such a rate.
-- Any other name is for events only. A domain is of the source that the catalogue gives it to, else of itself.
local belonging = {}

-- Whether a name can be a domain or an address. One without a dot is lent: a host of that name is within one's own network.
function belonging.is_domain(name) return name:find('[.:]') ~= nil end

-- name -> the domains that it is believed for, with blanks around each; true for any; false for none
reads('beliefs', function(ctx, names)
  local found, lent = read_all('HMGET', ctx.K.catalogue, names), {}
  for index, name in ipairs(names) do
    local _, domains = rates.parts_of_row(found[index])
    found[index] = domains ~= '' and domains or domains == ''
    if not domains and not belonging.is_domain(name) then lent[#lent + 1] = name end
  end
  look_up(ctx, 'overrides', lent)
  for index, name in ipairs(#lent > 0 and names or {}) do
    found[index] = found[index] or not belonging.is_domain(name) and rates.override_of(ctx.overrides[name]) ~= nil
  end
  return found
end)

function belonging.is_bound_to(belief, domain)
  return type(belief) == 'string' and belief:find(' ' .. domain .. ' ', 1, true) ~= nil
end

function belonging.is_believed(ctx, name, domain)
  local belief = ctx.beliefs[name]
  return belief == true or belonging.is_bound_to(belief, domain)
end

-- domain -> its source
reads('sources_of', function(ctx, domains)
  local owners, named = read_all('HMGET', ctx.K.hosts, domains), {}
  for _, owner in ipairs(owners) do named[#named + 1] = owner or nil end
  look_up(ctx, 'beliefs', named)
  for index, domain in ipairs(domains) do
    local owner = owners[index]
    if not owner or not belonging.is_believed(ctx, owner, domain) then owners[index] = domain end
  end
  return owners
end)

-- The source that a request belongs to. Without a domain, `name` is that of a source already.
function belonging.source_of(ctx, name, domain)
  if not domain or name and naming.is_valid(name) and belonging.is_believed(ctx, name, domain) then return name end
  return ctx.sources_of[domain]
end

-- Looks at requests at once: the `source` that the seed of each names and its `domain`, of which either may be missing.
function belonging.look_up(ctx, requests)
  local names, domains, is_named, is_there = {}, {}, {}, {}
  for _, request in ipairs(requests) do
    local name, domain = request.source, request.domain
    if domain and name and not is_named[name] then names[#names + 1], is_named[name] = name, true end
    if domain and not is_there[domain] then domains[#domains + 1], is_there[domain] = domain, true end
  end
  look_up(ctx, 'beliefs', names)
  look_up(ctx, 'sources_of', domains)
end

-- Which sources requests belong to, in their order (false: that is not known); each of these once; and each name once or
-- more that is a source or stands in a seed, as those that are for events only can be excluded, too.
function belonging.attribute(ctx, requests)
  belonging.look_up(ctx, requests)
  local sources, distinct, names, chosen = {}, {}, {}, {}
  for index, request in ipairs(requests) do
    local name, source = request.source, belonging.source_of(ctx, request.source, request.domain)
    sources[index] = source or false
    if source and not chosen[source] then
      chosen[source] = true
      distinct[#distinct + 1], names[#names + 1] = source, source
    end
    if name and name ~= source then names[#names + 1] = name end
  end
  return sources, distinct, names
end

-- Whether `source` is bound to a domain that `host` is in.
function belonging.is_bound_to_host(ctx, source, host)
  local belief, domain = ctx.beliefs[source], host
  while domain do
    if belonging.is_bound_to(belief, domain) then return true end
    domain = domain:match('^[^.]*%.(.+)$')
  end
  return false
end

-- Whether a stored request belongs to the source that has it in its queue: the catalogue, the rates and the version
-- may be others by now. For what cannot be told, it does.
function belonging.belongs(ctx, source, entry)
  local belief = ctx.beliefs[source]
  if belief == true then return true end
  local host = naming.host_of(entry)
  if host == '' then return true end
  if belief and belonging.is_bound_to_host(ctx, source, host) then return true end
  if host ~= source and host:sub(-#source - 1) ~= '.' .. source then return false end
  if ctx.sources_of[source] ~= source then return false end
  local name = naming.source_in(entry)
  return not name or not belonging.is_believed(ctx, name, source)
end
