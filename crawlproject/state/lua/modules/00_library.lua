-- One library of Redis Functions. Its text is the files of this folder, joined in the order of their names, and then those of
-- `functions/`: a module is a table, and a file of `functions/` is one function that is called from outside.
--
-- `ctx` is what one call knows. Nothing outlives a call but constants: what it has read, and what it is to write, is in
-- `ctx`, never in a variable of the library. Fields of `ctx`:
--    K: the keys, by their names in state/keys.py
--    A: the arguments, and behind them what the caller sets for all calls (its settings)
--    any name of `state`: what that function returns, from when it is first asked for until the end of the call
--
-- Redis carries out a function that writes only while it takes writes: out of memory, or without enough replicas, it refuses
-- the call before it begins. So nothing is done by halves. Flags of a function: 'allow-oom' for one that an
-- operator, a leader or a reader needs most when memory is short; 'no-writes' for one that only reads.

local state = {}

local function in_ctx(ctx, name)
  local make = state[name]
  if not make then return nil end
  local value = make(ctx)
  rawset(ctx, name, value)
  return value
end

-- Arguments that a call does not name are those of its settings, which most calls do not look at.
local function arguments(named, settings)
  local function among_settings(_, name)
    local all = cmsgpack.unpack(settings)
    setmetatable(named, {__index = all})
    return all[name]
  end
  return setmetatable(named, {__index = among_settings})
end

local CONTEXT = {__index = in_ctx}

-- Keys: one that does not exist, of the slot that all keys of the call are in, and another one. A cluster that moves the slot
-- refuses a call for two such keys, and would carry out one for a single key, on half of the data.
-- Arguments: those of the call, its spider, its settings.
local function register(name, body, flags)
  redis.register_function({
    function_name = 'crawl_@DIGEST@_' .. name,
    callback = function(keys, args)
      local ctx = setmetatable({tag = keys[1], spider = args[2], A = arguments(cmsgpack.unpack(args[1]), args[3])}, CONTEXT)
      return body(ctx, ctx.K, ctx.A)
    end,
    flags = flags,
  })
end
