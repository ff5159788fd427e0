-- What was taken out of budgets and is past: now, how many. Gives how many were removed.
local found = call('ZRANGEBYSCORE', T .. ':past', '-inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
for _, each in ipairs(found) do
  local account, field = string.match(each, '^(.*)\n(.*)$')
  call('HDEL', T .. ':m:' .. account, field)
  if call('EXISTS', T .. ':m:' .. account) == 0 then forget_account(account) end
  call('ZREM', T .. ':past', each)
end
return #found
