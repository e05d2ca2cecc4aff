-- Excludes sources and domains, from this very call on.
-- needs: audit, queues
-- types: set excluded, hash excluded_by excluded_by_file
-- reads: fence
--
-- A: names; reasons (of each, '' for none); by (an operator) or fence (a leader: the names stand in its CRAWL_EXCLUDE).
-- Reply: {name, 1 if it was not excluded before, 1 if a source of that name has work, ...}; {} when another leads by now.

if A.fence and require_counter(K.fence) ~= A.fence then return {} end
local reply, added = {}, {}
for index, name in ipairs(A.names) do
  local reason, key = A.reasons[index], A.by and K.excluded_by or K.excluded_by_file
  local value = reason
  if A.by then value = cjson.encode({by = 'operator, ' .. A.by, time = iso_time(), reason = reason}) end
  if A.by or redis.call('HGET', key, name) ~= value then redis.call('HSET', key, name, value) end
  local new = redis.call('SADD', K.excluded, name)
  if new == 1 then added[#added + 1] = name end
  if new == 1 and A.by then
    note_change('crawl_excluded', {source = name, type = 'operator', msg = name .. ' is excluded', by = 'operator, ' .. A.by,
      reason = reason ~= '' and reason or nil})
  end
  local has_work = redis.call('EXISTS', K.delayed_of .. name, unpack(queues_of(name))) > 0 or has_overflow(name)
  for _, part in ipairs({name, new, has_work and 1 or 0}) do reply[#reply + 1] = part end
end
if A.fence and #added > 0 then
  local shown = table.concat(added, ', ', 1, math.min(#added, 10)) .. (#added > 10 and ', ...' or '')
  note_change('crawl_excluded', {source = #added == 1 and added[1] or '', type = 'file', by = worker_at_work(),
    msg = string.format('CRAWL_EXCLUDE names %d more: %s', #added, shown)})
end
return reply
