-- Counts the work of halted sources, a page of them at a time: all at once would hold Redis up.
-- needs: queues
-- types: list quarantine, zset due_fast due_mid due_slow, set halted
--
-- A: cursor ('0': from the beginning); count (sources a page).
-- Reply: {cursor of the next page, '0' after the last, requests, seeds that wait beyond the sources' shares}; with the
-- first page those that are quarantined. {'0', 0, 0} when a source that is not halted has work: then nobody needs to count.

local work, waiting = 0, 0
if A.cursor == '0' then
  for _, tier in ipairs({K.due_fast, K.due_mid, K.due_slow}) do
    -- Halted sources are put a second ahead again and again: others come before them.
    for _, source in ipairs(redis.call('ZRANGE', tier, 0, 9)) do
      if redis.call('SISMEMBER', K.halted, source) == 0 then return {'0', 0, 0} end
    end
  end
  for _, quarantined in ipairs(redis.call('LRANGE', K.quarantine, 0, -1)) do
    work = work + redis.call('SISMEMBER', K.halted, quarantined:match('^(.-)\n') or '')
  end
end
local page = redis.call('SSCAN', K.halted, A.cursor, 'COUNT', A.count)
for _, source in ipairs(page[2]) do
  work, waiting = work + backlog_of(source), waiting + overflow_of(source)
end
return {page[1], work, waiting}
