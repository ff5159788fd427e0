-- Rows of an index in the order of first sight: index, 'up' or 'down', from beyond which number, how many,
-- 'small' or 'whole'. Gives number, key, row, number, key, row, …
local index, way, beyond, many, what = T .. ':' .. ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
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
  rows[#rows + 1] = what == 'small' and small_of(found[i]) or call('GET', row_of(found[i]))
end
return rows
