-- Counts some of the entries of an event stream that come after one of them.
--
-- A: stream; after (entry id); upto (entry id, + for the end); most (entries to count: a longer stretch takes several
--    calls, none of which is long).
-- Reply: {entries counted, id of the last one or ''}
register('count_unread', function(ctx, K, A)
  for _, stream in ipairs(ctx.EVENT_STREAMS) do
    if stream == A.stream then
      local entries = redis.call('XRANGE', stream, '(' .. A.after, A.upto, 'COUNT', A.most)
      return {#entries, #entries > 0 and entries[#entries][1] or ''}
    end
  end
  return {0, ''}
end, {'no-writes'})
