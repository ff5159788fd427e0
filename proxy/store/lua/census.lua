-- How many rows there are, how many in each of these states, the oldest doubt, the bytes.
local counts = {call('ZCARD', T .. ':all')}
for i, state in ipairs(ARGV) do counts[i + 1] = call('ZCARD', T .. ':s:' .. state) end
local oldest = call('ZRANGE', T .. ':doubts', 0, 0, 'WITHSCORES')
return {counts, oldest[2] or '', call('HGET', T .. ':figures', 'bytes') or '0'}
