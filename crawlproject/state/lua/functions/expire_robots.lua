-- Has copies of robots.txt fetched again; until then they hold. Whoever fetches one at present keeps its turn.
--
-- A: urls (of robots.txt, or where they lead to), at most a hundred.
-- Reply: where those that redirect lead.
register('expire_robots', function(ctx, K, A)
  local targets = {}
  for _, url in ipairs(A.urls) do
    local copy = robots.copy_of(ctx, url)
    if copy.kind == 'redirect' then targets[#targets + 1] = copy.body end
    if copy.kind then
      copy.fresh = math.min(copy.fresh, ctx.now)
      robots.store(ctx, url, copy)
    end
  end
  return targets
end, {'allow-oom'})
