-- Types: what is in Redis may have been written by others, or by an operator's slip (`set` for `sadd`).
--
-- Scripts do not roll back. Redis denies the first write of a script, when it denies any (out of memory, replica),
-- and none after it: a script either raises before anything has happened, or runs to its end. Therefore:
--    A key that sources share is checked before the first write: those in the `types:` of a header are checked
--    when the script begins, those in its `reads:` when it reads them, by `read` or `strings`. One of another type
--    stops the script, and the error names it.
--    A key of one source or worker is only tried, by `attempt`: one of another type keeps that source alone from
--    being crawled, and its requests become dead letters.

local function require_type(kind, key)
  local found = redis.call('TYPE', key).ok
  if found ~= 'none' and found ~= kind then
    error('WRONGTYPE ' .. key .. ' is a ' .. found .. ', not a ' .. kind .. ': remove or rename it', 0)
  end
  return found ~= 'none'
end

-- The same for many keys, of which few are there as a rule: no more of them are looked at than it takes to find these.
local function require_few(kind, ...)
  local others = redis.call('EXISTS', ...)
  for _, key in ipairs({...}) do
    if others == 0 then return end
    if require_type(kind, key) then others = others - 1 end
  end
end

-- The same for several sets, or streams, by one command that looks at the type of each, and then has nothing to do.
local function require_sets(...)
  if redis.pcall('SDIFF', (...) .. ':none', ...).err then
    for _, key in ipairs({...}) do require_type('set', key) end
  end
end

local function require_streams(...)
  local arguments = {'STREAMS', ...}
  for _ = 1, select('#', ...) do arguments[#arguments + 1] = '$' end
  local reply = redis.pcall('XREAD', unpack(arguments))
  if reply and reply.err then
    for _, key in ipairs({...}) do require_type('stream', key) end
  end
end

-- What a reading command answers for a key of this type.
local function read(kind, command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) == 'table' and reply.err then
    require_type(kind, key)
    error(reply.err, 0)
  end
  return reply
end

-- The values of strings; false for one that is missing.
local function strings(...)
  local values = redis.call('MGET', ...) -- a key of another type counts as missing there
  for index, value in ipairs(values) do
    if not value then require_type('string', (select(index, ...))) end
  end
  return unpack(values)
end

-- The value of a counter; 0 when it is missing.
local function counter(key, value)
  if not value then return 0 end
  if not value:find('^%-?%d+$') or #value > 16 then
    error('WRONGTYPE ' .. key .. ' does not hold a whole number: remove it', 0)
  end
  return tonumber(value)
end

local function require_counter(key) return counter(key, (strings(key))) end

-- Whether none of several sources has a key that begins so; at most a few thousand sources.
local function none_has(prefix, sources)
  local keys = {}
  for index, source in ipairs(sources) do keys[index] = prefix .. source end
  return #keys > 0 and redis.call('EXISTS', unpack(keys)) == 0
end

-- What is wrong with a key of one source or worker.
local function wrong(key)
  return 'WRONGTYPE ' .. key .. ' is a ' .. redis.call('TYPE', key).ok
    .. ', or holds data not written by crawlproject: remove or rename it'
end

-- Has the leader log what keeps one source from being crawled.
local function report_data_fault(sentence) redis.pcall('SET', K.data_fault, sentence, 'PX', 10000) end

-- Runs a command on a key of one source; nil when the key holds something of another kind. Other errors are raised.
local function attempt(command, key, ...)
  local reply = redis.pcall(command, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if not (reply.err:find('WRONGTYPE', 1, true) or reply.err:find('not an integer', 1, true)
      or reply.err:find('overflow', 1, true)) then
    error(reply.err, 0)
  end
  report_data_fault(wrong(key))
  return nil
end
