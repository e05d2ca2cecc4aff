-- Which hosts the results of a source came from: a field of its window, of the last minutes.
--
-- {turn, host, fine, errors, host, fine, errors, ...}, of the first eight hosts; those of all others stand under ''. Every
-- five minutes, a turn, all numbers are halved, and hosts without any make room.
local seen_hosts = {}

local MOST_HOSTS = 8

-- Numbers are halved every five minutes (in us).
function seen_hosts.turn_of_hosts(ctx) return math.floor(ctx.now / 300000000) end

function seen_hosts.unpack_hosts(ctx, packed)
  local hosts, values = {}, packed and cmsgpack.unpack(packed) or {0}
  local share = 2 ^ math.min(values[1] - seen_hosts.turn_of_hosts(ctx), 0)
  for place = 2, #values, 3 do
    local fine, errors = math.floor(values[place + 1] * share), math.floor(values[place + 2] * share)
    if fine + errors > 0 then hosts[#hosts + 1] = {name = values[place], fine = fine, errors = errors} end
  end
  return hosts
end

function seen_hosts.pack_hosts(ctx, hosts)
  local values = {seen_hosts.turn_of_hosts(ctx)}
  for _, host in ipairs(hosts) do
    local place = #values
    values[place + 1], values[place + 2], values[place + 3] = host.name, host.fine, host.errors
  end
  return cmsgpack.pack(values)
end

function seen_hosts.add_to_hosts(hosts, name, fine)
  local found, others, count = nil, nil, 0
  for _, host in ipairs(hosts) do
    if host.name == '' then others = host else count = count + 1 end
    if host.name == name then found = host end
  end
  if not found and count >= MOST_HOSTS then found, name = others, '' end
  if not found then
    found = {name = name, fine = 0, errors = 0}
    hosts[#hosts + 1] = found
  end
  if fine then found.fine = found.fine + 1 else found.errors = found.errors + 1 end
end

-- The only one of several hosts that has errors; nil where there is no such.
function seen_hosts.failing_host(hosts)
  local failing, others_answer
  for _, host in ipairs(hosts) do
    if host.errors > 0 then
      if failing or host.name == '' then return nil end
      failing = host.name
    elseif host.fine > 0 then
      others_answer = true
    end
  end
  return others_answer and failing or nil
end
