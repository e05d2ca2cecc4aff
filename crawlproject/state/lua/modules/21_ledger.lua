-- The ledger: what of its budget each source has used (budget.lua).
--
-- A line is `links poor`, or `links poor sitemaps`: how many links found on pages it has admitted, how many of them are poor
-- ones, and how many sitemaps it has led to. Junk that is found there counts as nothing.
local ledger = {}

function ledger.ledger_in(line)
  local all, poor, sitemaps = (line or ''):match('^(%d+) (%d+) ?(%d*)$')
  return number(all) or 0, number(poor) or 0, number(sitemaps) or 0
end

function ledger.ledger_line(all, poor, sitemaps)
  return text(all) .. ' ' .. text(poor) .. (sitemaps > 0 and ' ' .. text(sitemaps) or '')
end
