-- Runs, the newest first: below which number, how many.
local runs = {}
for i, run in ipairs(call('ZREVRANGEBYSCORE', T .. ':runs', '(' .. ARGV[1], '-inf', 'LIMIT', 0, ARGV[2])) do
  runs[i] = call('HMGET', T .. ':r:' .. run, 'tenant', 'name', 'created_at', 'active_at', 'state', 'version',
                 'pulse', 'last_seq', 'record', 'number')
end
return runs
