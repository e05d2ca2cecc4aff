-- The ledger: what of its budget each source has used (budget.lua).
--
-- A line is `links poor`, or `links poor sitemaps`: how many links found on pages it has admitted, how many of them are poor
-- ones, and how many sitemaps it has led to.
local ledger = {}

function ledger.ledger_in(line)
  local all, poor, sitemaps = (line or ''):match('^(%d+) (%d+) ?(%d*)$')
  return tonumber(all) or 0, tonumber(poor) or 0, tonumber(sitemaps) or 0
end

function ledger.ledger_line(all, poor, sitemaps)
  return text(all) .. ' ' .. text(poor) .. (sitemaps > 0 and ' ' .. text(sitemaps) or '')
end
