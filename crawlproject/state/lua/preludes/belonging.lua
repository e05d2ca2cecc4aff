-- Which source a request belongs to: the one that its seed names, where that is to be believed, else the one that the
-- domain of its URL is of.
-- needs: names, hosts, rates
-- types: hash hosts claims limits
--
-- A name is believed
--    for the domains that the catalogue binds it to (K.claims), and for no other;
--    for any domain, where the catalogue has a row that binds it to none, or an operator has given it a rate. A name that
--    can itself be a domain is not lent to others by such a rate.
-- Any other name is for events only. A domain is of the source that the catalogue gives it to, else of itself.

local beliefs = {} -- name -> the domains that it is believed for, with blanks around each; true for any; false for none
local sources_of = {} -- domain -> its source

-- Whether a name in lower case can be an IPv6 address, as URLs have it.
local function is_ipv6(name)
  if name:find('[^%x:]') or name:find(':::', 1, true) or name:find('%x%x%x%x%x') then return false end
  local _, groups = name:gsub('%x+', '')
  local _, gaps = name:gsub('::', '')
  if gaps == 0 then return groups == 8 and name:find('^%x.*%x$') ~= nil end
  return gaps == 1 and groups < 8 and not name:find('^:%x') and not name:find('%x:$')
end

-- Whether a name in lower case can be a registrable domain or an address: labels of letters, digits and hyphens (beyond
-- ASCII any), the last one of letters. A name without a dot is lent: a host of that name is within one's own network.
local function is_domain(name)
  if name:find('^%d+%.%d+%.%d+%.%d+$') or is_ipv6(name) then return true end
  local above, last = name:match('^([%w\128-\255.-]+)%.([^.]+)$')
  if not above or not (last:find('^[%a\128-\255]+$') or last:find('^xn%-%-[%w-]+$')) then return false end
  for label in (above .. '.'):gmatch('([^.]*)%.') do
    if label == '' or label:find('^%-') or label:find('%-$') then return false end
  end
  return true
end

-- Looks at several names at once.
local function look_up_beliefs(names)
  local asked, unknown = {}, {}
  for _, name in ipairs(names) do
    if beliefs[name] == nil then
      beliefs[name] = false
      asked[#asked + 1] = name
    end
  end
  for first = 1, #asked, 1000 do
    local last = math.min(first + 999, #asked)
    local domains = redis.call('HMGET', K.claims, unpack(asked, first, last))
    local sizes = redis.call('HMGET', K.limits, unpack(asked, first, last))
    for index = 1, last - first + 1 do
      local name = asked[first + index - 1]
      beliefs[name] = domains[index] or sizes[index] and true
      if not beliefs[name] and not is_domain(name) then
        if overrides[name] ~= nil then
          beliefs[name] = override_of(overrides[name]) ~= nil
        else
          unknown[#unknown + 1] = name
        end
      end
    end
  end
  look_up_overrides(unknown)
  for _, name in ipairs(unknown) do beliefs[name] = override_of(overrides[name]) ~= nil end
end

local function is_bound_to(belief, domain)
  return type(belief) == 'string' and belief:find(' ' .. domain .. ' ', 1, true) ~= nil
end

local function belief_in(name)
  if beliefs[name] == nil then look_up_beliefs({name}) end
  return beliefs[name]
end

local function is_believed(name, domain)
  local belief = belief_in(name)
  return belief == true or is_bound_to(belief, domain)
end

local function note_source_of(domain, named)
  sources_of[domain] = named and is_name(named) and is_believed(named, domain) and named or domain
end

local function source_of_domain(domain)
  if not sources_of[domain] then note_source_of(domain, redis.call('HGET', K.hosts, domain)) end
  return sources_of[domain]
end

-- The source that a request belongs to. Without a domain, `name` is that of a source already.
local function source_of(name, domain)
  if not domain or name and is_name(name) and is_believed(name, domain) then return name end
  return source_of_domain(domain)
end

-- Looks at the names and domains of `count` requests at once; each may be missing.
local function look_up_belonging(names, domains, count)
  local asked, wanted, seen = {}, {}, {}
  for index = 1, count do
    local name, domain = names[index], domains[index]
    if domain and name then asked[#asked + 1] = name end
    if domain and not seen[domain] and not sources_of[domain] then
      seen[domain], wanted[#wanted + 1] = true, domain
    end
  end
  local owners = #wanted > 0 and redis.call('HMGET', K.hosts, unpack(wanted)) or {}
  for index = 1, #wanted do
    if owners[index] then asked[#asked + 1] = owners[index] end
  end
  look_up_beliefs(asked)
  for index, domain in ipairs(wanted) do note_source_of(domain, owners[index]) end
end

-- Whether `source` is bound to a domain that `host` is in.
local function is_bound_to_host(source, host)
  local belief, domain = belief_in(source), host
  while domain do
    if is_bound_to(belief, domain) then return true end
    domain = domain:match('^[^.]*%.(.+)$')
  end
  return false
end

-- Whether a stored request belongs to the source that has it in its queue: the catalogue, the rates and the version
-- may be others by now. For what cannot be told, it does.
local function belongs(source, entry)
  local belief = belief_in(source)
  if belief == true then return true end
  local host = host_of(entry)
  if host == '' then return true end
  if belief and is_bound_to_host(source, host) then return true end
  if host ~= source and host:sub(-#source - 1) ~= '.' .. source then return false end
  if source_of_domain(source) ~= source then return false end
  local name = name_in(entry)
  return not name or not is_believed(name, source)
end
