-- Sets the counters of a frontier to what there is, when the audit has looked at all of its keys.
--
-- A: before (outstanding, overflow and spilled, as they were when it began; false: missing); found (the sums of what it has
--    seen in queues and overflows: of overflows and spilled, as mend.lua has them).
-- Reply: for each that was changed its name, what it was, what it is.
--
-- Where few sources have work all of it is counted in this call, so exactly. Else what moves while the audit looks makes its
-- sums inexact: a counter is set only where it is wrong by more than a fiftieth, and by more than it has changed
-- meanwhile. What is left is put right when there is little work; nothing ends or begins because of it (idle.lua).
register('recount', function(ctx, K, A)
  local MOST = 500 -- sources: some 2 ms
  local COUNTERS = {'outstanding', 'overflow', 'spilled'}

  local function held_by_workers()
    local held = 0
    for _, worker in ipairs(redis.call('ZRANGE', K.workers, 0, -1)) do
      held = held + redis.call('HLEN', K.leases_of .. worker)
    end
    return held
  end

  local number, sets = 0, {K.overflow_due, unpack(ctx.due_sets)} -- one that waits for an extent need not be due
  for _, set in ipairs(sets) do number = number + redis.call('ZCARD', set) end
  local found, is_exact = A.found, number <= MOST
  if is_exact then
    local chosen = {}
    found = {0, 0, 0}
    for _, set in ipairs(sets) do
      for _, source in ipairs(redis.call('ZRANGE', set, 0, -1)) do chosen[source] = true end
    end
    for source in pairs(chosen) do
      found[1] = found[1] + queues.backlog_of(ctx, source)
      if queues.has_overflow(ctx, source) then
        local spilled = queues.spilled_of(ctx, source)
        found[2], found[3] = found[2] + queues.tail_of(ctx, source) + spilled, found[3] + spilled
      end
    end
  end
  found[1] = found[1] + held_by_workers()

  local reply = {}
  for index, name in ipairs(COUNTERS) do
    local stored = redis.call('GET', K[name])
    local was, before = tonumber(stored) or 0, tonumber(A.before[index]) or 0
    local missing = found[index] - (is_exact and was or (was + before) / 2)
    if missing ~= 0 and (is_exact or math.abs(missing) > math.max(math.abs(was - before), found[index] / 50)) then
      redis.call('SET', K[name], text(was + missing))
      for _, value in ipairs({name, text(was), text(was + missing)}) do reply[#reply + 1] = value end
    end
  end
  statistics.add(K.totals, 'mended', #reply / 3)
  return reply
end, {'allow-oom'})
