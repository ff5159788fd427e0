-- A run's fields, for each run that is named; nil for one that is not there.
local runs = {}
for i, run in ipairs(ARGV) do
  local fields = call('HMGET', T .. ':r:' .. run, 'tenant', 'name', 'created_at', 'active_at', 'state', 'version',
                      'pulse', 'last_seq', 'record', 'number')
  runs[i] = fields[1] and fields or false
end
return runs
