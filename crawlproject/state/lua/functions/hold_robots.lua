-- Makes the lock on fetching a robots.txt last: while its holder is alive, nobody else fetches it.
--
-- A: url; token (as for keep_robots); lock (us).
-- Reply: 1, or 0 when the lock was lost.
register('hold_robots', function(ctx, K, A)
  local key = K.robots_fetch_of .. A.url
  if redis.call('GET', key) ~= A.token then return 0 end
  redis.call('PEXPIRE', key, string.format('%.0f', A.lock / 1000))
  return 1
end, {'allow-oom'})
