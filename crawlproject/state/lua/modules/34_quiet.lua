-- Forgets what serves only the present of a source that has been quiet: its circuit, if nothing is held against it, and
-- its statuses.
local quiet = {}

-- An unbroken run of errors counts towards a halt for a day more. Nothing is forgotten of a source whose window is still
-- there, or that is halted, open, probed, held or slowed down.
function quiet.forget_quiet(ctx, source)
  local key, circuit = ctx.K.circuit_of .. source, circuits.circuit_of(ctx, source)
  local is_watched = circuit.state ~= 'closed' or circuit.hold > ctx.now or circuits.factor_of(ctx, circuit) < 1
  if is_watched or circuits.is_halted(ctx, source) or redis.call('EXISTS', ctx.K.window_of .. source) == 1 then return end
  if not circuit.rests then
    redis.call('DEL', key)
    if circuit.run > 0 then
      redis.call('HSET', key, 'run', text(circuit.run), 'generation', text(circuit.generation), 'rests', 1)
      redis.call('PEXPIRE', key, 86400000)
    end
  end
  redis.call('LTRIM', ctx.K.statuses_of .. source, 1, 0)
end
