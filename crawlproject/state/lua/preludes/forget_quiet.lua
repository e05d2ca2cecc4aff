-- Forgets what serves only the present of a source that has been quiet: its circuit, if nothing is held against it, and
-- its statuses.
-- needs: circuit_changes

-- An unbroken run of errors counts towards a halt for a day more. Nothing is forgotten of a source whose window is still
-- there, or that is halted, open, probed, held or slowed down.
local function forget_quiet(source)
  local key, circuit = K.circuit_of .. source, circuit_of(source)
  local is_watched = circuit.broken or circuit.state ~= 'closed' or circuit.hold > now or factor_of(circuit) < 1
  if is_watched or is_halted(source) or redis.call('EXISTS', K.window_of .. source) == 1 then return end
  if not circuit.rests then
    redis.call('DEL', key)
    if circuit.run > 0 then
      redis.call('HSET', key, 'run', text(circuit.run), 'generation', text(circuit.generation), 'rests', 1)
      redis.call('PEXPIRE', key, 86400000)
    end
  end
  attempt('LTRIM', K.statuses_of .. source, 1, 0)
end
