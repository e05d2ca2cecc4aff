-- Commands in texts for people, who copy them into a shell; the same as scrapy_command in texts.py.
local shell = {}

-- A command: a shell takes each of `words` as one word and as nothing else, whoever has chosen it. It belongs at the end of a line.
function shell.command_line(words)
  local quoted = {}
  for index, word in ipairs(words) do
    word = word:gsub('%c', '?')
    quoted[index] = word:find('[^%w@%%+=:,./_-]') and "'" .. word:gsub("'", "'\"'\"'") .. "'" or word
  end
  return table.concat(quoted, ' ')
end
