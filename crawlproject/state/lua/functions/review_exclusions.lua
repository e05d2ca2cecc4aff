-- Notes some of what operators have excluded with `sadd` to the set, or included with `srem`, as the commands note it.
--
-- A: fence; cursor, noted_cursor ('0': from the beginning); count (names at most, or so).
-- Reply: {cursor of the next call, noted_cursor of it}; {} when another leads by now.
register('review_exclusions', function(ctx, K, A)
  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return {} end
  if redis.call('EXISTS', K.excluded, K.excluded_by) == 0 then return {'0', '0'} end
  local page = redis.call('SSCAN', K.excluded, A.cursor, 'COUNT', A.count)
  local noted = redis.call('HSCAN', K.excluded_by, A.noted_cursor, 'COUNT', A.count)
  for _, name in ipairs(page[2]) do
    if redis.call('HEXISTS', K.excluded_by, name) == 0 and naming.is_valid(name) then
      local said = {by = 'operator, by key', time = audit.iso_time(ctx), reason = ''}
      redis.call('HSET', K.excluded_by, name, cjson.encode(said))
      exclusions.note(ctx, 'excluded', name, 'by key')
    end
  end
  for index = 1, #noted[2], 2 do
    local name = noted[2][index]
    if redis.call('SISMEMBER', K.excluded, name) == 0 then
      redis.call('HDEL', K.excluded_by, name)
      exclusions.note(ctx, 'included', name, 'by key')
    end
  end
  return {page[1], noted[1]}
end, {'allow-oom'})
