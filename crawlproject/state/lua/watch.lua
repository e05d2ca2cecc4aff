-- Looks at every source on the watchlist: what time has brought, and what operators have said by their keys.
-- needs: forget_quiet, due
-- types: zset active
-- reads: fence
--
-- A: fence; min_rate; circuit.
-- Reply: {source, what, source, what, ...}: 'halted', 'resumed' or 'probing', for the log; {} when another
--    leads by now.
--
-- An operator halts with `sadd` to the halted set, resumes with `srem` from it (or from those halted for a
-- while) or by deleting the statuses. No more than 1,000 sources of each set are looked at in one call.

if require_counter(K.fence) ~= A.fence then return {} end
local DAY_US = 86400000000
local reply, seen = {}, {}

local function say(source, what)
  reply[#reply + 1], reply[#reply + 2] = source, what
end

-- Whether rest.lua has found that it has had no results for a while.
local function is_quiet(source) return not redis.call('ZSCORE', K.active, source) end

local function look(source)
  if seen[source] then return end
  seen[source] = true
  local circuit = circuit_of(source)
  local temporarily = redis.call('SISMEMBER', K.temp_halted, source) == 1
  local resumed
  if not is_halted(source) and (circuit.state == 'halted' or (circuit.state == 'open' and not temporarily)) then
    resumed = 'an operator resumed it'
  elseif statuses_deleted(source) then
    resumed = 'an operator deleted the statuses'
  end
  if resumed then
    local kind = circuit.state == 'halted' and 'permanent' or circuit.state ~= 'closed' and 'temporary' or nil
    close_circuit(source, kind, resumed, true)
    if kind then say(source, 'resumed') end
  elseif is_halted(source) and circuit.state ~= 'halted' then
    halt(source, 'an operator halted it')
    say(source, 'halted')
  elseif temporarily and circuit.state ~= 'open' and not is_halted(source) then
    open_circuit(source, 'an operator halted it for a while')
    say(source, 'halted')
  elseif circuit.state == 'open' and circuit.ends <= now then
    let_probes_out(source)
    say(source, 'probing')
  elseif circuit.state == 'half_open' and circuit.ends + DAY_US <= now and is_quiet(source) then
    close_circuit(source, 'temporary', 'nothing was heard of it for a day', false)
    say(source, 'resumed')
  elseif circuit.state == 'closed' and circuit.hold <= now and factor_of(circuit) >= 1 then
    redis.call('SREM', K.watchlist, source)
    if circuit.factor < 1 and not circuit.broken then
      redis.call('HSET', K.circuit_of .. source, 'factor', 1, 'why', '', 'noted', 0)
    end
    if is_quiet(source) then forget_quiet(source) end
  end
end

for _, set in ipairs({K.halted, K.temp_halted, K.watchlist}) do
  for _, source in ipairs(redis.call('SRANDMEMBER', set, 1000)) do look(source) end
end
save_circuits()
schedule_all(changed)
return reply
