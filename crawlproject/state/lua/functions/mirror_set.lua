-- Brings a set that operators write to, in a slot of its own on a Redis Cluster, and the shard's own into line.
--
-- A: fence; set (`halted`, `temp_halted` or `excluded`); names (500 at most); there (of each: 1 if it is in the operators'
--    set); kept (names that were added to that set, and that a replica has there, too); takings (what `told` had under that
--    name, behind a newline, before the operators' set was read; '': nothing).
-- Reply: {} when another leads by now; else {names to be added to the operators' set, names to be taken out of it}.
--
-- A three-way merge: `told` says what the operators' set is known to have. `there`: it has the name; `adding`, `taking`: it is
-- about to be changed, which the next call makes sure of, by whichever leader. So a name that is missing there was taken
-- out by an operator if it was `there`, and has come in the shard otherwise. A name is `there` only once a replica has it:
-- else a fail-over that forgets it would look like an operator who takes it out. What a command takes out of both sets is
-- `taking` until it knows that the operators' set is without it, and then nothing is told of it, but one more of `takings`:
-- where that differs by now, a name that only the operators' set had may be gone there, and waits for the next look.
register('mirror_set', function(ctx, K, A)
  if tonumber(redis.call('GET', K.fence) or 0) ~= A.fence then return {} end
  local set = ({halted = K.halted, temp_halted = K.temp_halted, excluded = K.excluded})[A.set]
  local told = K.told_of .. A.set
  local said = redis.call('HMGET', told, unpack(A.names))
  local here = redis.call('SMISMEMBER', set, unpack(A.names))
  local is_old = (redis.call('HGET', told, '\ntakings') or '') ~= A.takings
  local kept, add, take = {}, {}, {}
  for _, name in ipairs(A.kept) do kept[name] = true end

  local function tell(name, what, list)
    redis.call('HSET', told, name, what)
    if list then list[#list + 1] = name end
  end

  for index, name in ipairs(A.names) do
    local state, is_there, is_here = said[index], A.there[index] == 1, here[index] == 1
    if is_there and is_here then
      if state == 'adding' and kept[name] then
        tell(name, 'there')
      elseif state ~= 'there' then -- how its addition has ended, or what was to take it out, nobody knows
        tell(name, 'adding', add)
      end
    elseif is_here then
      if state == 'there' then
        redis.call('SREM', set, name)
        redis.call('HDEL', told, name)
      else
        tell(name, 'adding', add)
      end
    elseif is_there then
      if state then
        tell(name, 'taking', take)
      elseif not is_old then
        redis.call('SADD', set, name)
        tell(name, 'there')
      end
    else
      redis.call('HDEL', told, name)
    end
  end
  return {add, take}
end, {'allow-oom'})
