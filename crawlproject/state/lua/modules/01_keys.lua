-- Keys: what stands behind the tag of a crawl (OF_CRAWL), or behind that and a spider (OF_SPIDER), by name. state/keys.py spells them,
-- and state/functions.py puts them here.
local OF_CRAWL, OF_SPIDER = @KEYS@

-- The keys of a crawl and a spider, by name; each is spelled when it is first asked for.
local keys_of = memo(function(owners)
  local tag, spider = owners:match('^(.*)\n(.*)$')
  local seeds = spider .. ':start_urls'

  local function spelled(keys, name)
    local key
    if OF_SPIDER[name] then key = tag .. ':' .. spider .. ':' .. OF_SPIDER[name]
    elseif OF_CRAWL[name] then key = tag .. ':' .. OF_CRAWL[name]
    elseif name == 'seeds' then key = tag == 'crawl' and seeds or tag .. ':' .. seeds
    elseif name == 'users_seeds' then key = tag:match('^{(.*)}$') or seeds
    else error('no key has the name ' .. tostring(name)) end
    rawset(keys, name, key)
    return key
  end

  return setmetatable({}, {__index = spelled})
end)

-- Keys that users write to by redis-cli: seed lists, who is halted or excluded, rates. One of another type (`set` for `sadd`)
-- is an error that names it, before anything is written. All other keys are the crawl's own: nothing checks them.
local users_keys = {}

function users_keys.require(kind, key)
  local found = redis.call('TYPE', key).ok
  if found ~= kind and found ~= 'none' then
    error({err = 'WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. kind .. ': remove or rename it'})
  end
end

-- Every call begins with this: two commands that look at the types of these keys, and then have next to nothing to do.
function users_keys.check(none, K)
  local sets, list = redis.pcall('SDIFF', none, K.halted, K.temp_halted, K.excluded), redis.pcall('LLEN', K.seeds)
  if sets.err then
    for _, key in ipairs({K.halted, K.temp_halted, K.excluded}) do users_keys.require('set', key) end
  end
  if type(list) == 'table' then users_keys.require('list', K.seeds) end
end
