-- Domains, and the sources that the catalogue gives them to.
-- needs: names
-- types: hash hosts

local sources_of = {}

local function source_of_domain(domain)
  local source = sources_of[domain]
  if not source then
    local named = redis.call('HGET', K.hosts, domain)
    source = named and is_name(named) and named or domain
    sources_of[domain] = source
  end
  return source
end
