-- Keeps the event streams and the slots within bounds, and the size of all copies of robots.txt correct.
--
-- A: fence; maxlen; drop (whether the oldest events go, read or not, beyond maxlen); ttl (ms); shards (how many there
--    are; none: one).
-- Reply: {reason of a pause or '', entries dropped unread}
--
-- Unless `drop` says so, nothing is dropped that a reader has yet to read, or that nobody has read: past `maxlen` such
-- entries leasing pauses. When Redis is out of memory, all that every reader has read goes.
register('trim', function(ctx, K, A)
  local AT_ONCE = 5000 -- members of a set, entries of a stream

  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return {'', 0} end
  -- Drops what is older, but no more than takes a few milliseconds.
  local function drop_older(set, bound)
    local count = redis.call('ZCOUNT', set, '-inf', bound)
    if count > 0 then redis.call('ZREMRANGEBYRANK', set, 0, math.min(count, AT_ONCE) - 1) end
  end

  drop_older(K.slots, '(' .. text(ctx.now))
  robots.drop_oldest(ctx)
  for _, spider in ipairs({ctx.spider, unpack(redis.call('ZRANGE', K.spiders, 0, -1))}) do
    local own = keys_of(ctx.tag .. '\n' .. spider)
    drop_older(own.active, text(ctx.now - 3600000000))
    if redis.call('XLEN', own.dead) == 0 then redis.call('DEL', own.dead_sources) end -- somebody has deleted them
  end

  local bound = 'CRAWL_STREAM_MAXLEN events'
  if A.shards then
    bound = string.format('%d events, the part of CRAWL_STREAM_MAXLEN that each of %d shards has,', A.maxlen, A.shards)
  end

  local function why_unread(behind)
    if not behind then
      return ' that no reader has read: run scrapy events results.jsonl --follow, or let the oldest go (CRAWL_EVENTS_UNREAD=drop)'
    end
    return ' that reader ' .. behind[1] .. ' has not read: run its scrapy events (scrapy events --readers says which), '
      .. 'or give that reader up (scrapy events --forget and its name)'
  end

  local positions, is_full = readers.read_by_all(ctx), readers.is_memory_full()
  local reason, dropped = '', 0
  for _, stream in ipairs(ctx.EVENT_STREAMS) do
    local is_long = redis.call('XLEN', stream) > A.maxlen
    if is_full or is_long then readers.drop_read(stream, positions) end
    if is_long and redis.call('XLEN', stream) > A.maxlen then
      if A.drop then
        dropped = dropped + redis.call('XTRIM', stream, 'MAXLEN', '~', A.maxlen, 'LIMIT', 4 * AT_ONCE)
      else
        reason = stream .. ' holds more than ' .. bound .. why_unread(positions[stream])
      end
    end
  end
  statistics.note(ctx, '', 'events_trimmed', dropped)
  if reason ~= '' then
    redis.call('SET', K.paused, reason, 'PX', A.ttl)
  elseif redis.call('PTTL', K.paused) > A.ttl then
    redis.call('DEL', K.paused) -- the clock was set back
  end
  return {reason, dropped}
end, {'allow-oom'})
