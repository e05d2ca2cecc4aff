-- Includes sources and domains again that were excluded.
--
-- A: names; by (an operator) or fence (a leader: CRAWL_EXCLUDE names them no more).
-- Reply: for each name 'included', 'not excluded', 'file' (CRAWL_EXCLUDE still names it) or 'operator' (one has excluded it,
-- too); {} when another leads by now.
register('include', function(ctx, K, A)
  if A.fence and tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return {} end
  local reply, removed = {}, {}
  for index, name in ipairs(A.names) do
    redis.call('HDEL', A.by and K.excluded_by or K.excluded_by_file, name)
    if redis.call('HEXISTS', A.by and K.excluded_by_file or K.excluded_by, name) == 1 then
      reply[index] = A.by and 'file' or 'operator'
    elseif redis.call('SREM', K.excluded, name) == 1 then
      reply[index], removed[#removed + 1] = 'included', name
    else
      reply[index] = 'not excluded'
    end
  end
  for _, name in ipairs(A.by and removed or {}) do exclusions.note(ctx, 'included', name, A.by) end
  if A.fence then exclusions.note_file(ctx, 'included', removed) end
  return reply
end, {'allow-oom'})
