-- Rows of an index in the order of first sight: index, 'up' or 'down', from beyond which number, how many.
-- Gives number, key, small part of the row, number, …
local index, way, beyond, many = T .. ':' .. ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local found
if way == 'up' then
  found = call('ZRANGEBYSCORE', index, '(' .. beyond, '+inf', 'WITHSCORES', 'LIMIT', 0, many)
else
  found = call('ZREVRANGEBYSCORE', index, '(' .. beyond, '-inf', 'WITHSCORES', 'LIMIT', 0, many)
end
local rows = {}
for i = 1, #found, 2 do
  rows[#rows + 1] = string.format('%d', tonumber(found[i + 1]))
  rows[#rows + 1] = found[i]
  rows[#rows + 1] = small_of(found[i])
end
return rows
