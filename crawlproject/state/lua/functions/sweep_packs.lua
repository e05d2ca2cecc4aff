-- Says which packs of the store may be removed: those that have been without an extent for an hour.
--
-- A: names (of packs in the store).
-- Reply: the names of those that may go.
--
-- No lead and no fence is needed: a pack that may go once never has an extent again. spill_commit.lua refuses one that is
-- over ten minutes old. The hour of a pack that nothing is known of begins now: should somebody have deleted K.packs, the audit
-- finds those that are needed meanwhile (mend.lua).
register('sweep_packs', function(ctx, K, A)
  local HOUR_US = 3600000000

  redis.call('ZREMRANGEBYSCORE', K.packs, text(48 * HOUR_US - ctx.now), '(0') -- these were removed
  local reply = {}
  for _, name in ipairs(A.names) do
    if name:match('^[%w_-]+/%d+%-%x+$') then
      redis.call('ZADD', K.packs, 'NX', text(-ctx.now), name)
      local score = tonumber(redis.call('ZSCORE', K.packs, name))
      if score < 0 and -score < ctx.now - HOUR_US then reply[#reply + 1] = name end
    end
  end
  return reply
end, {'allow-oom'})
