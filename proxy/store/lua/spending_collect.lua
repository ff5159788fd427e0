-- What was taken out of budgets and is past: now, how many. Gives how many were removed.
local found = call('ZRANGEBYSCORE', T .. ':past', '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
for _, each in ipairs(found) do
  local account, field = string.match(each, '^(.*)\n(.*)$')
  call('HDEL', T .. ':m:' .. account, field)
  call('ZREM', T .. ':past', each)
end
return #found
