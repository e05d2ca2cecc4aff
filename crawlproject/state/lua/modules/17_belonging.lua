-- Which source a request belongs to: the one that its seed names, where that is to be believed, else the one that the
-- domain of its URL is of.
--
-- A name is believed
--    for the domains that the catalogue binds it to, and for no other;
--    for any domain, where the catalogue has a row that binds it to none, or an operator has given it a rate. A name that
--    can itself be a domain is not lent to others by such a rate.
-- Any other name is for events only. A domain is of the source that the catalogue gives it to, else of itself.
local belonging = {}

-- name -> the domains that it is believed for, with blanks around each; true for any; false for none
function state.beliefs() return {} end
-- domain -> its source
function state.sources_of() return {} end

-- Whether a name can be a domain or an address. One without a dot is lent: a host of that name is within one's own network.
function belonging.is_domain(name) return name:find('[.:]') ~= nil end

-- Looks at several names at once.
function belonging.look_up_beliefs(ctx, names)
  local asked, unknown = {}, {}
  for _, name in ipairs(names) do
    if ctx.beliefs[name] == nil then
      ctx.beliefs[name] = false
      asked[#asked + 1] = name
    end
  end
  local rows = read_all('HMGET', ctx.K.catalogue, asked)
  for index, name in ipairs(asked) do
    local _, domains = rates.parts_of_row(rows[index])
    ctx.beliefs[name] = domains ~= '' and domains or domains == ''
    if not ctx.beliefs[name] and not belonging.is_domain(name) then unknown[#unknown + 1] = name end
  end
  rates.look_up_overrides(ctx, unknown)
  for _, name in ipairs(unknown) do ctx.beliefs[name] = rates.override_of(ctx.overrides[name]) ~= nil end
end

function belonging.is_bound_to(belief, domain)
  return type(belief) == 'string' and belief:find(' ' .. domain .. ' ', 1, true) ~= nil
end

function belonging.belief_in(ctx, name)
  if ctx.beliefs[name] == nil then belonging.look_up_beliefs(ctx, {name}) end
  return ctx.beliefs[name]
end

function belonging.is_believed(ctx, name, domain)
  local belief = belonging.belief_in(ctx, name)
  return belief == true or belonging.is_bound_to(belief, domain)
end

function belonging.note_source_of(ctx, domain, named)
  ctx.sources_of[domain] = named and naming.is_valid(named) and belonging.is_believed(ctx, named, domain) and named or domain
end

function belonging.source_of_domain(ctx, domain)
  if not ctx.sources_of[domain] then belonging.note_source_of(ctx, domain, redis.call('HGET', ctx.K.hosts, domain)) end
  return ctx.sources_of[domain]
end

-- The source that a request belongs to. Without a domain, `name` is that of a source already.
function belonging.source_of(ctx, name, domain)
  if not domain or name and naming.is_valid(name) and belonging.is_believed(ctx, name, domain) then return name end
  return belonging.source_of_domain(ctx, domain)
end

-- Looks at requests at once: the `source` that the seed of each names and its `domain`, of which either may be missing.
function belonging.look_up(ctx, requests)
  local asked, wanted, seen = {}, {}, {}
  for _, request in ipairs(requests) do
    local name, domain = request.source, request.domain
    if domain and name then asked[#asked + 1] = name end
    if domain and not seen[domain] and not ctx.sources_of[domain] then
      seen[domain], wanted[#wanted + 1] = true, domain
    end
  end
  local owners = read_all('HMGET', ctx.K.hosts, wanted)
  for index = 1, #wanted do
    if owners[index] then asked[#asked + 1] = owners[index] end
  end
  belonging.look_up_beliefs(ctx, asked)
  for index, domain in ipairs(wanted) do belonging.note_source_of(ctx, domain, owners[index]) end
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
  local belief, domain = belonging.belief_in(ctx, source), host
  while domain do
    if belonging.is_bound_to(belief, domain) then return true end
    domain = domain:match('^[^.]*%.(.+)$')
  end
  return false
end

-- Whether a stored request belongs to the source that has it in its queue: the catalogue, the rates and the version
-- may be others by now. For what cannot be told, it does.
function belonging.belongs(ctx, source, entry)
  local belief = belonging.belief_in(ctx, source)
  if belief == true then return true end
  local host = naming.host_of(entry)
  if host == '' then return true end
  if belief and belonging.is_bound_to_host(ctx, source, host) then return true end
  if host ~= source and host:sub(-#source - 1) ~= '.' .. source then return false end
  if belonging.source_of_domain(ctx, source) ~= source then return false end
  local name = naming.source_in(entry)
  return not name or not belonging.is_believed(ctx, name, source)
end
