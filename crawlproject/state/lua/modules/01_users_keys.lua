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
