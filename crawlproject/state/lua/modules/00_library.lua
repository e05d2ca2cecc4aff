-- One library of Redis Functions. Its text is the files of this folder, joined in the order of their names, and then those of
-- `functions/`: a module is a table, and a file of `functions/` is one function that is called from outside.
--
-- `ctx` is what one call knows. Nothing outlives a call but constants: what it has read, and what it is to write, is in
-- `ctx`, never in a variable of the library. Fields of `ctx`:
--    K: the keys, by their names in state/keys.py
--    A: the arguments, and behind them what the caller sets for all calls (its settings)
--    any name of `state`: what that function returns, from when it is first asked for until the end of the call
--
-- Redis carries out a function only while it takes writes: without enough replicas, say, it refuses the call before it begins.
-- So nothing is done by halves.

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
local users_keys = {} -- see 02_users_keys.lua

-- What takes in more than it ends: out of memory Redis refuses these calls. The others end something, free memory or tell, and go
-- through.
local GROWING = {}
for name in ([[
  acquire begin_feed discover enqueue exclude feed hold_robots keep_robots lease look_robots note_text offer peek_seeds receive
  receive_seeds refill_commit renew revisit send_found send_seeds set_rates split_seeds take_seeds waiting
]]):gmatch('%S+') do GROWING[name] = true end

-- Keys: one that does not exist, of the slot that all keys of the call are in, and another one. A cluster that moves the slot
-- refuses a call for two such keys, and would carry out one for a single key, on half of the data.
-- Arguments: those of the call, its spider, its settings.
local function register(name, body)
  redis.register_function({
    function_name = 'crawl_@DIGEST@_' .. name,
    callback = function(keys, args)
      local ctx = setmetatable({tag = keys[1], spider = args[2], A = arguments(cmsgpack.unpack(args[1]), args[3])}, CONTEXT)
      users_keys.check(ctx, ctx.K)
      return body(ctx, ctx.K, ctx.A)
    end,
    flags = GROWING[name] and {} or {'allow-oom'},
  })
end
