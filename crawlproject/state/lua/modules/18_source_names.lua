-- Names of sources.
local source_names = {}

function state.names_seen() return {} end

function source_names.is_valid_name(source)
  if #source == 0 or #source > 512 or source:find('^-') or source:find('[^%w._:\128-\255-]') then return false end
  if not source:find('[\128-\255]') then return true end
  for _, form in ipairs({'[\194-\223][\128-\191]', '\224[\160-\191][\128-\191]',
    '[\225-\236\238\239][\128-\191][\128-\191]', '\237[\128-\159][\128-\191]',
    '\240[\144-\191][\128-\191][\128-\191]', '[\241-\243][\128-\191][\128-\191][\128-\191]',
    '\244[\128-\143][\128-\191][\128-\191]'}) do -- RFC 3629, section 4
    source = source:gsub(form, 'x')
  end
  return not source:find('[\128-\255]')
end

-- Whether a source can have that name (sources/names.py): of ASCII only letters, digits and `._:-`, with no `-` in front;
-- all else is UTF-8, and not looked at more closely.
function source_names.is_name(ctx, source)
  local valid = ctx.names_seen[source]
  if valid == nil then
    valid = source_names.is_valid_name(source)
    ctx.names_seen[source] = valid
  end
  return valid
end

-- The meta of a stored request; empty for one with bytes in it, which Redis cannot unpack.
function source_names.meta_of(entry)
  local is_read, request = pcall(cmsgpack.unpack, entry:sub(4))
  return is_read and request.meta or {}
end

-- The source that the seed of a stored request names; nil where it names none, or a redirect has led elsewhere since.
function source_names.name_in(ctx, entry)
  if not entry:find('\166source', 1, true) or entry:find('redirect_urls', 1, true) then return nil end
  local name = source_names.meta_of(entry).source
  return name and source_names.is_name(ctx, name) and name or nil
end
