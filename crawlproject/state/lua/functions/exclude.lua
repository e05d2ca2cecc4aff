-- Excludes sources and domains, from this very call on; or includes them again.
--
-- A: names; reasons (of each, '' for none; nil: they are included again); by (an operator) or fence (a leader: the names stand in
--    its CRAWL_EXCLUDE, or no more).
-- Reply: of each name what it is by now: 'excluded', 'included', 'not excluded', 'file' (CRAWL_EXCLUDE still names it) or
--    'operator' (one has excluded it, too). {} when another leads by now.
register('exclude', function(ctx, K, A)
  if A.fence and tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return {} end
  local reply, changed = {}, {}

  local function note(name, reason)
    changed[#changed + 1] = name
    if A.by then exclusions.note(ctx, A.reasons and 'excluded' or 'included', name, A.by, reason) end
  end

  local function exclude(name, reason)
    local said = exclusions.said_of(ctx, name)
    if A.by then
      said.by, said.time, said.reason = 'operator, ' .. A.by, audit.iso_time(ctx), reason
    else
      said.file = reason
    end
    redis.call('HSET', K.excluded_by, name, cjson.encode(said))
    if redis.call('SADD', K.excluded, name) == 1 then note(name, reason ~= '' and reason or nil) end
    return 'excluded'
  end

  local function include(name)
    local said = exclusions.said_of(ctx, name)
    if A.by then said.by, said.time, said.reason = nil, nil, nil else said.file = nil end
    if next(said) then
      redis.call('HSET', K.excluded_by, name, cjson.encode(said))
      return A.by and 'file' or 'operator'
    end
    redis.call('HDEL', K.excluded_by, name)
    if redis.call('SREM', K.excluded, name) == 0 then return 'not excluded' end
    note(name)
    return 'included'
  end

  for index, name in ipairs(A.names) do
    reply[index] = A.reasons and exclude(name, A.reasons[index]) or include(name)
  end
  if A.fence then exclusions.note_file(ctx, A.reasons and 'excluded' or 'included', changed) end
  return reply
end, {'allow-oom'})
