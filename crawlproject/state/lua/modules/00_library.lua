-- One library of Redis Functions. Its text is the files of this folder, joined in the order of their names, and then those of
-- `functions/`: a module is a table, and a file of `functions/` is one function that is called from outside.
--
-- `ctx` is what one call knows. Nothing outlives a call but constants: what it has read, and what it is to write, is in
-- `ctx`, never in a variable of the library. What follows from constants alone may be kept (`memo`). Fields of `ctx`:
--    K: the keys, by their names in state/keys.py
--    A: the arguments, and behind them what the caller sets for all calls (its settings)
--    any name of `state`: what that function returns, from when it is first asked for until the end of the call
--    any name that is given to `reads`: what is known of sources, or other names
--
-- Redis carries out a function that writes only while it takes writes: out of memory, or without enough replicas, it refuses
-- the call before it begins. So nothing is done by halves. Flags of a function: 'allow-oom' for one that ends something, frees
-- memory or tells, which goes through out of memory; 'no-writes' for one that only reads.

local state = {}

local function in_ctx(ctx, name)
  local make = state[name]
  if not make then return nil end
  local value = make(ctx)
  rawset(ctx, name, value)
  return value
end

-- Makes a field of `ctx` what a call reads of sources, or other names: name -> value, each read once. `read(ctx, names)` returns the
-- values of several, in order; none is nil.
local readings = {}

local function reads(field, read)
  local ALSO = {__index = function(known, name)
    local value = read(known[1], {name})[1]
    known[name] = value
    return value
  end}
  readings[field] = read
  state[field] = function(ctx) return setmetatable({ctx}, ALSO) end -- [1]: no name is a number
end

-- Has such a field know several names, by one reading.
local function look_up(ctx, field, names)
  local known, unknown = ctx[field], {}
  for _, name in ipairs(names) do
    if rawget(known, name) == nil then unknown[#unknown + 1] = name end
  end
  for index, value in ipairs(#unknown > 0 and readings[field](ctx, unknown) or {}) do known[unknown[index]] = value end
end

-- What is noted in a field of `ctx` is written once, at the end of each call that has used it, by `write(ctx)`: in the order of these
-- lines, also of a call that has met an error, so that what it has done stands.
local endings = {}

local function at_end(field, write) endings[#endings + 1] = {field = field, write = write} end

-- Returns the first error that a writer has met, nil for none: the others write in spite of it.
local function finish(ctx)
  local problem
  for _, ending in ipairs(endings) do
    local went_well, met = true, nil
    if rawget(ctx, ending.field) then went_well, met = pcall(ending.write, ctx) end
    if not went_well then problem = problem or met end
  end
  return problem
end

-- A function that keeps what `make` returns for each text. Callers have few different ones; beyond, it begins anew.
local function memo(make)
  local kept, count = {}, 0
  return function(key)
    local value = kept[key]
    if not value then
      value = make(key)
      if count >= 64 then kept, count = {}, 0 end
      kept[key], count = value, count + 1
    end
    return value
  end
end

-- Arguments that a call does not name are those of its settings.
local behind_arguments = memo(function(settings) return {__index = cmsgpack.unpack(settings)} end)
