-- Looks at every source on the watchlist: what time has brought, and what operators have said by their keys.
--
-- A: fence; min_rate; circuit.
-- Reply: 0 when another leads by now; 1 when all were looked at; 2 when there are more.
--
-- An operator halts with `sadd` to the halted set, and resumes with `srem` from it (or from those halted for a while); or by
-- `scrapy resume`, whose order also lifts what slows or holds a source. Of each set no more than 50 sources are looked at in one
-- call, chosen at random, and no more than 40 are changed. A halt does not wait for that, nor does a source with work
-- that is resumed: see lease.lua.
register('watch', function(ctx, K, A)
  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return 0 end
  local MOST = 50
  local MOST_CHANGES = 40 -- each takes up to 0.2 ms
  local sources, temporarily_halted, changes, reply = {}, {}, 0, 1

  -- Returns 1 if it has changed anything.
  local function look(source)
    local circuit, temporarily = ctx.circuits[source], temporarily_halted[source]
    local ordered = redis.call('HDEL', K.ordered_by_of .. source, 'resume') == 1
    local ended = circuit.state == 'halted' or circuit.state == 'open' and not temporarily
    if (ordered or ended) and not ctx.halted[source] then
      local kind = circuit.state == 'halted' and 'permanent' or circuit.state ~= 'closed' and 'temporary' or nil
      due_index.resume(ctx, source, kind)
    elseif ctx.halted[source] and circuit.state ~= 'halted' then
      circuits.halt(ctx, source, 'an operator halted it')
    elseif temporarily and circuit.state ~= 'open' and not ctx.halted[source] then
      circuits.open(ctx, source, 'an operator halted it for a while')
    elseif circuit.state == 'open' and circuit.ends <= ctx.now then
      circuits.let_probes_out(ctx, source)
    elseif not circuits.is_troubled(ctx, source) then
      redis.call('SREM', K.watchlist, source)
      if circuit.factor < 1 or circuit.hold > 0 then
        circuits.change(ctx, source)
        circuit.factor, circuit.why, circuit.hold = 1, '', 0
      end
    else
      return 0
    end
    return 1
  end

  local chosen = {}
  for _, set in ipairs({K.halted, K.temp_halted, K.watchlist}) do
    local members = redis.call('SRANDMEMBER', set, MOST)
    if #members == MOST then reply = 2 end
    for _, source in ipairs(members) do
      if not chosen[source] then
        chosen[source] = true
        sources[#sources + 1] = source
      end
    end
  end
  look_up(ctx, 'halted', sources)
  for index, is_member in ipairs(members_of(K.temp_halted, sources)) do temporarily_halted[sources[index]] = is_member end
  for _, source in ipairs(sources) do
    if changes == MOST_CHANGES then
      reply = 2
      break
    end
    changes = changes + look(source)
  end
  return reply
end, {'allow-oom'})
