-- Excludes sources and domains, from this very call on; or includes them again.
--
-- A: names; reasons (of each, '' for none; nil: they are included again); by (an operator) or fence (a leader: the names stand in
--    its CRAWL_EXCLUDE, or no more).
-- Reply: {name, 1 if it was not excluded before, 1 if a source of that name has work, ...}; of names that are included, for each
-- 'included', 'not excluded', 'file' (CRAWL_EXCLUDE still names it) or 'operator' (one has excluded it, too). {} when another leads
-- by now.
register('exclude', function(ctx, K, A)
  if A.fence and tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return {} end
  local key, other = K.excluded_by_file, K.excluded_by
  if A.by then key, other = other, key end
  local reply, changed = {}, {}

  local function note(name, reason)
    changed[#changed + 1] = name
    if A.by then exclusions.note(ctx, A.reasons and 'excluded' or 'included', name, A.by, reason) end
  end

  local function exclude(name, reason)
    local value = reason
    if A.by then value = cjson.encode({by = 'operator, ' .. A.by, time = audit.iso_time(ctx), reason = reason}) end
    if A.by or redis.call('HGET', key, name) ~= value then redis.call('HSET', key, name, value) end
    local new = redis.call('SADD', K.excluded, name)
    if new == 1 then note(name, reason ~= '' and reason or nil) end
    for _, part in ipairs({name, new, queues.has_any(ctx, name) and 1 or 0}) do reply[#reply + 1] = part end
  end

  local function include(name)
    redis.call('HDEL', key, name)
    local now = 'not excluded'
    if redis.call('HEXISTS', other, name) == 1 then
      now = A.by and 'file' or 'operator'
    elseif redis.call('SREM', K.excluded, name) == 1 then
      now = 'included'
      note(name)
    end
    reply[#reply + 1] = now
  end

  for index, name in ipairs(A.names) do
    if A.reasons then exclude(name, A.reasons[index]) else include(name) end
  end
  if A.fence then exclusions.note_file(ctx, A.reasons and 'excluded' or 'included', changed) end
  return reply
end, {'allow-oom'})
