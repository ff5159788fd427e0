-- Rows in doubt, the oldest first: how many. Gives key, row, key, row, …
local rows = {}
for _, member in ipairs(call('ZRANGE', T .. ':doubts', 0, ARGV[1] - 1)) do
  local key = string.sub(member, 17)
  rows[#rows + 1] = key
  rows[#rows + 1] = call('GET', row_of(key))
end
return rows
