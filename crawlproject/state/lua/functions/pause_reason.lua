-- Says why nothing goes out of any source.
--
-- A: dead_maxlen; timeout (us that a worker may be silent).
-- Reply: {kind, sentence}, both '' while requests may go out; see the pause.
register('pause_reason', function(ctx, K, A)
  local pulse, unread, outstanding, overflow, spilled =
    unpack(redis.call('MGET', K.pulse, K.paused, K.outstanding, K.overflow, K.spilled))
  local tails = tonumber(overflow or 0) - tonumber(spilled or 0)
  return pause.reason(ctx, pulse, unread, tonumber(outstanding or 0), tails)
end, {'no-writes'})
