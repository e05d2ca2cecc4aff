-- Keys: how each is spelled. state/keys.py says what it holds, and its test compares the two.

-- Those of the crawl, behind its tag and a colon.
local OF_CRAWL = {
  slots = 'slots', spiders = 'spiders', waiting_spiders = 'waiting_spiders', rates = 'rates', catalogue = 'catalogue',
  override_rate_of = 'override_rate:', hosts = 'hosts',
  circuit_of = 'circuit:', window_of = 'window:', halted = 'halted',
  temp_halted = 'temp_halted', excluded = 'excluded', excluded_by = 'excluded_by',
  watchlist = 'troubled', robots_of = 'robots:', robots_stored = 'robots_stored',
  robots_delays_of = 'robots_delays:', statuses_of = 'statuslast50req:',
  requests_of = 'requests:', incidents_of = 'incidents:', pulse = 'pulse',
  leader = 'leader', fence = 'fence', paused = 'paused', clock = 'clock',
  image_events = 'image_metadata_updates', probe_events = 'image_probes',
  link_rot_events = 'link_rot', failed_events = 'failed', page_events = 'pages', media_events = 'page_media',
  halted_events = 'crawl_halted', resumed_events = 'crawl_resumed', audit = 'audit',
  ordered_by_of = 'ordered_by:', readers = 'readers',
}

-- Those of a spider, behind its name and a further colon.
local OF_SPIDER = {
  foreign_of = 'foreign:', batch_of = 'foreign_batch:', received_of = 'received:', forwarder = 'forwarder',
  processing_of = 'in_hand:',
  feed_of = 'feed:', queue_of = 'queue:', delayed_of = 'delayed:', due_of = 'due:',
  paced = 'paced', seen_of = 'seen:', seen_meta = 'seen_meta',
  texts_of = 'texts:', counters = 'counters', overflow_of = 'overflow:',
  extents_of = 'extents:', overflow_due = 'overflow_due',
  spill_fault = 'spill_fault', pack_folder = 'pack_folder', packs = 'packs',
  revisits_of = 'revisits:', revisits = 'revisits', ledger = 'ledger',
  found_hosts_of = 'found_hosts:', workers = 'workers', leases_of = 'leases:',
  dead = 'dead', counts = 'counts',
  totals = 'totals', dead_sources = 'dead_sources',
  active = 'active',
}

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
