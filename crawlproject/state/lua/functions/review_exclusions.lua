-- Looks over some of the exclusions: what operators have said by the key, and what excluded sources still have waiting.
--
-- A: fence (of a leader; none: of a worker that does not lead); cursor, noted_cursor ('0': from the beginning); count (names
--    at most, or so).
-- Reply: {cursor of the next call, noted_cursor of it, source with work, ...}; {} when another leads by now. To a worker that
--    does not lead: {} when the leader is of its spider, and does that.
--
-- An operator excludes with `sadd` to the set, and includes with `srem`: that is noted here, as it is by the commands; by the
-- leader alone.
register('review_exclusions', function(ctx, K, A)
  if A.fence then
    if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return {} end
  elseif redis.call('ZSCORE', K.workers, redis.call('GET', K.leader) or '') then
    return {}
  end
  if redis.call('EXISTS', K.excluded, K.excluded_by) == 0 then return {'0', '0'} end
  local page = redis.call('SSCAN', K.excluded, A.cursor, 'COUNT', A.count)
  local noted = A.fence and redis.call('HSCAN', K.excluded_by, A.noted_cursor, 'COUNT', A.count) or {A.noted_cursor, {}}
  local reply, names = {page[1], noted[1]}, page[2]
  local orders, of_file = read_all('HMGET', K.excluded_by, names), read_all('HMGET', K.excluded_by_file, names)
  for index, name in ipairs(names) do
    if queues.has_any(ctx, name) then reply[#reply + 1] = name end
    if A.fence and not orders[index] and not of_file[index] and naming.is_valid(name) then
      redis.call('HSET', K.excluded_by, name, cjson.encode({by = 'operator, by key', time = audit.iso_time(ctx), reason = ''}))
      exclusions.note(ctx, 'excluded', name, 'by key')
    end
  end
  for index = 1, #noted[2], 2 do
    local name = noted[2][index]
    if redis.call('SISMEMBER', K.excluded, name) == 0 then
      redis.call('HDEL', K.excluded_by, name)
      if naming.is_valid(name) then exclusions.note(ctx, 'included', name, 'by key') end
    end
  end
  return reply
end, {'allow-oom'})
