-- Accounts of another store, as they are: account, run, field, value, when it is past (empty: never), and so on.
-- Gives for each 1, or 0 if it is there.
local made = {}
for i = 1, #ARGV, 5 do
  local account, run, field, expires = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 4]
  local new = call('HSETNX', T .. ':m:' .. account, field, ARGV[i + 3])
  if new == 1 then
    call('ZADD', T .. ':accounts', 0, account)
    if expires ~= '' then call('ZADD', T .. ':past', expires, account .. '\n' .. field) end
    if run ~= '' then call('SADD', T .. ':purse:' .. run, account) end
  end
  made[#made + 1] = new
end
return made
