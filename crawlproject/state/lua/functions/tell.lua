-- Gives the leader what has been added to the audit trail since it, or the one before, has last told of it.
--
-- A: worker; told (the last entry that it has told of, '' at first); count (entries at most).
-- Reply: {1 if it leads, id, event, id, event, ...}
--
-- An entry is told again where a leader ends between telling of it and its next call. The later of the two places
-- counts: a worker that leads again may not have noticed that another has led in between.
register('tell', function(ctx, K, A)
  -- Whether an entry's id is one, and stands after another.
  local function is_after(id, other)
    local millis, count = (id or ''):match('^(%d+)%-(%d+)$')
    local before, of_them = (other or ''):match('^(%d+)%-(%d+)$')
    millis, count, before, of_them = tonumber(millis), tonumber(count), tonumber(before), tonumber(of_them)
    if not (millis and count) then return false end
    return not (before and of_them) or millis > before or millis == before and count > of_them
  end

  local leader, told = unpack(redis.call('MGET', K.leader, K.audit_told))
  if leader ~= A.worker then return {0} end
  local last = is_after(told, '') and told or '0-0'
  if is_after(A.told, last) then
    last = A.told
    redis.pcall('SET', K.audit_told, last) -- refused when Redis is out of memory
  end
  local reply = {1}
  for _, entry in ipairs(redis.call('XRANGE', K.audit, '(' .. last, '+', 'COUNT', A.count)) do
    reply[#reply + 1], reply[#reply + 2] = entry[1], entry[2][2]
  end
  return reply
end)
