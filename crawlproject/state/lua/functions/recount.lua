-- Sets the counters of a frontier to what there is, when the audit has looked at all of its keys.
--
-- A: before (the counters as they were when it began: outstanding, overflow, spilled, lease); held (how many leases there were
--    then); found (the sums of what it has seen in queues and overflows: of overflows and spilled, as mend.lua has them).
-- Reply: {name, what it was, what it is} of each that was changed.
--
-- What moves while the audit looks makes its sums inexact: while anything does, a counter is set only where it is far off, or
-- negative. Neither the end of a crawl nor a slot depends on it (idle.lua).
register('recount', function(ctx, K, A)
  local reply, held = {}, 0
  for _, worker in ipairs(redis.call('ZRANGE', K.workers, 0, -1)) do held = held + redis.call('HLEN', K.leases_of .. worker) end
  local is_at_rest = ctx.counters.lease == A.before[4] and held == A.held
  A.found[1] = A.found[1] + held
  for index, name in ipairs({'outstanding', 'overflow', 'spilled'}) do
    local was, found = ctx.counters[name], A.found[index]
    local moved, off = math.abs(was - A.before[index]), math.abs(found - was)
    if off > moved + math.max(100, found / 50) or off > 0 and (was < 0 or is_at_rest and moved == 0) then
      redis.call('HSET', K.counters, name, text(found))
      reply[#reply + 1] = {name, was, found}
    end
  end
  statistics.note(ctx, '', 'mended', #reply)
  return reply
end, {'allow-oom'})
