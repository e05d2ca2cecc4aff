-- The hosts of URLs and of stored requests.
local host_names = {}

-- The host in a URL in its stored form, '' where there is none: escaped, in lower case and, as IDNA, in ASCII.
function host_names.host_in(url)
  local authority = url:match('^%a+://([^/?#]*)') or ''
  local place = authority:match('@([^@]*)$') or authority
  return ((place:match('^%[([^%]]*)%]') or place:match('^[^:]*')):lower():gsub('%.+$', ''))
end

-- The host that a stored request goes to, '' where that cannot be told. Its URL is the first of its attributes
-- (frontier/codec.py), as Scrapy spells it.
function host_names.host_of(entry)
  if not entry:find('^...[\128-\143]\163url') then return '' end
  local kind, one, two = entry:byte(9, 11) -- of a string, up to 65,535 bytes: a URL is no longer
  local from, length = 10, kind - 160
  if kind == 217 then
    from, length = 11, one
  elseif kind == 218 then
    from, length = 12, one * 256 + two
  end
  return host_names.host_in(entry:sub(from, from + length - 1))
end
