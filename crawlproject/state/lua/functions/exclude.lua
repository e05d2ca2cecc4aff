-- Excludes sources and domains, from this very call on.
--
-- A: names; reasons (of each, '' for none); by (an operator) or fence (a leader: the names stand in its CRAWL_EXCLUDE).
-- Reply: {name, 1 if it was not excluded before, 1 if a source of that name has work, ...}; {} when another leads by now.
register('exclude', function(ctx, K, A)
  if A.fence and tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return {} end
  local reply, added = {}, {}
  for index, name in ipairs(A.names) do
    local reason, key = A.reasons[index], A.by and K.excluded_by or K.excluded_by_file
    local value = reason
    if A.by then value = cjson.encode({by = 'operator, ' .. A.by, time = audit.iso_time(ctx), reason = reason}) end
    if A.by or redis.call('HGET', key, name) ~= value then redis.call('HSET', key, name, value) end
    local new = redis.call('SADD', K.excluded, name)
    if new == 1 then added[#added + 1] = name end
    if new == 1 and A.by then exclusions.note(ctx, 'excluded', name, A.by, reason ~= '' and reason or nil) end
    for _, part in ipairs({name, new, queues.has_any(ctx, name) and 1 or 0}) do reply[#reply + 1] = part end
  end
  if A.fence then exclusions.note_file(ctx, 'excluded', added) end
  return reply
end, {'allow-oom'})
