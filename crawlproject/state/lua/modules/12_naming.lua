-- Names of sources, and the hosts of URLs and of stored requests.
local naming = {}

-- Whether a source can have that name (sources/names.py): of ASCII only letters, digits and `._:-`, with no `-` in front;
-- all else is not looked at more closely.
function naming.is_valid(source)
  return #source > 0 and #source <= 512 and not source:find('^-') and not source:find('[^%w._:\128-\255-]')
end

-- The attributes of a stored request and its meta; nothing for one with bytes in it, which Redis cannot unpack.
function naming.request_in(entry)
  local is_read, request = pcall(cmsgpack.unpack, entry:sub(4))
  if is_read and type(request) == 'table' then return request, type(request.meta) == 'table' and request.meta or {} end
end

-- The digest that the seen filter has a stored request by, that of its seed, before any redirect (frontier/codec.py); nil where
-- it cannot be told.
function naming.digest_of(entry)
  local is_told, hex = pcall(function() -- nobody has checked what stands there
    local request, meta = naming.request_in(entry)
    local name = meta.identifier or meta.sitemap ~= nil and 'sitemap' or ''
    if meta.crawl_mode ~= nil then name = meta.crawl_mode[1] .. '\n' .. name end
    return redis.sha1hex(name .. '\n' .. ((meta.redirect_urls or {})[1] or request.url))
  end)
  if not is_told then return nil end
  return (hex:sub(1, 16):gsub('%x%x', function(byte) return string.char(tonumber(byte, 16)) end))
end

-- The source that the seed of a stored request names; nil where it names none, or a redirect has led elsewhere since.
function naming.source_in(entry)
  if not entry:find('\166source', 1, true) or entry:find('redirect_urls', 1, true) then return nil end
  local _, meta = naming.request_in(entry)
  return meta and type(meta.source) == 'string' and meta.source or nil
end

-- The host in a URL in its stored form, '' where there is none: escaped, in lower case and, as IDNA, in ASCII.
function naming.host_in(url)
  local authority = url:match('^%a+://([^/?#]*)') or ''
  local place = authority:match('@([^@]*)$') or authority
  return ((place:match('^%[([^%]]*)%]') or place:match('^[^:]*')):lower():gsub('%.+$', ''))
end

-- The host that a stored request goes to, '' where that cannot be told. Its URL is the first of its attributes
-- (frontier/codec.py), as Scrapy spells it.
function naming.host_of(entry)
  if not entry:find('^...[\128-\143]\163url') then return '' end
  local kind, one, two = entry:byte(9, 11) -- of a string, up to 65,535 bytes: a URL is no longer
  local from, length = 10, kind - 160
  if kind == 217 then
    from, length = 11, one
  elseif kind == 218 then
    from, length = 12, one * 256 + two
  end
  return naming.host_in(entry:sub(from, from + length - 1))
end
