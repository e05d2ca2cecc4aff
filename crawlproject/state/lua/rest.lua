-- Puts sources to rest that have had no results for a while: their counts are packed into one field, and what serves
-- only the present of them is forgotten.
-- needs: forget_quiet
-- types: hash totals
-- reads: fence active counts_at_rest
--
-- A: fence; quiet (us without results); count (sources at most); min_rate; circuit.
-- Reply: how many sources there were.

if require_counter(K.fence) ~= A.fence then return 0 end
local sources = read('zset', 'ZRANGEBYSCORE', K.active, '-inf', text(now - A.quiet), 'LIMIT', 0, A.count)
if #sources == 0 then return 0 end

local packed, changed_counts = {}, {}
for index, value in ipairs(read('hash', 'HMGET', K.counts_at_rest, unpack(sources))) do
  local good, counts = true, {}
  if value then good, counts = pcall(cmsgpack.unpack, value) end
  if good and type(counts) == 'table' then
    packed[index] = counts
  else
    report_data_fault(K.counts_at_rest .. ' holds no counts for ' .. sources[index] .. ': remove that field')
  end
end

redis.call('ZREM', K.active, unpack(sources))
for _, name in ipairs(redis.call('HKEYS', K.totals)) do -- of each count there is a total
  local key, ended = K.counts_of .. name, {}
  for index, value in ipairs(attempt('HMGET', key, unpack(sources)) or {}) do
    local counts, more = packed[index], number(value or '')
    if counts and more and more % 1 == 0 then
      counts[name] = (number(counts[name]) or 0) + more
      ended[#ended + 1], changed_counts[index] = sources[index], true
    end
  end
  if #ended > 0 then redis.call('HDEL', key, unpack(ended)) end
end
local fields = {}
for index in pairs(changed_counts) do
  fields[#fields + 1], fields[#fields + 2] = sources[index], cmsgpack.pack(packed[index])
end
if #fields > 0 then redis.call('HSET', K.counts_at_rest, unpack(fields)) end

look_up_halted(sources)
for _, source in ipairs(sources) do forget_quiet(source) end
return #sources
