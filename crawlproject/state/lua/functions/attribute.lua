-- Says which sources requests belong to, and why; and whether they were ever enqueued. Changes nothing.
--
-- A: requests, of each the `source` that its seed names, the `domain` of its URL, and its `digest` (see the seen filter); each
--    may be missing.
-- Reply, for each in order: {source; what is known of the name: 'bound' to domains, 'row' of the catalogue without such,
--    'rate' of an operator, 'domain' that lends no rate, 'unknown'; '' where none is given; the domains that it is bound to;
--    1 if the seen filter has its digest}
register('attribute', function(ctx, K, A)
  belonging.look_up(ctx, A.requests)
  local reply = {}
  for index, request in ipairs(A.requests) do
    local name, domain = request.source, request.domain
    local belief, kind = name and ctx.beliefs[name], ''
    if type(belief) == 'string' then
      kind = 'bound'
    elseif name then
      local has_row = belief and redis.call('HEXISTS', K.catalogue, name) == 1
      kind = has_row and 'row' or belief and 'rate' or belonging.is_domain(name) and 'domain' or 'unknown'
    end
    reply[index] = {belonging.source_of(ctx, name, domain) or '', kind, kind == 'bound' and belief or '',
      request.digest and seen_filter.has(ctx, request.digest) and 1 or 0}
  end
  return reply
end, {'no-writes'})
