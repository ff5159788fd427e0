-- How many rows there are, how many are pending, how many in each of these states; the oldest doubt.
local counts = {call('ZCARD', T .. ':all'), call('HLEN', T .. ':pending')}
for _, state in ipairs(ARGV) do counts[#counts + 1] = call('ZCARD', T .. ':s:' .. state) end
local oldest = call('ZRANGE', T .. ':doubts', 0, 0, 'WITHSCORES')
return {counts, oldest[2] or ''}
