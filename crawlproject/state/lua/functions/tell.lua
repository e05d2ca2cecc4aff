-- Gives the leader what has been added to the audit trail since it, or the one before, has last told of it.
--
-- A: worker; told (the last entry that it has told of, '' at first); count (entries at most).
-- Reply: {1 if it leads, id, event, id, event, ...}
--
-- An entry is told again where a leader ends between telling of it and its next call. The later of the two places
-- counts: a worker that leads again may not have noticed that another has led in between.
register('tell', function(ctx, K, A)
  local leader, last = unpack(redis.call('MGET', K.leader, K.audit_told))
  if leader ~= A.worker then return {0} end
  last = last or '0-0'
  if A.told ~= '' and readers.is_before(last, A.told) then
    last = A.told
    redis.call('SET', K.audit_told, last)
  end
  local reply = {1}
  for _, entry in ipairs(redis.call('XRANGE', K.audit, '(' .. last, '+', 'COUNT', A.count)) do
    reply[#reply + 1], reply[#reply + 2] = entry[1], entry[2][2]
  end
  return reply
end, {'allow-oom'})
