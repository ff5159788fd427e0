-- Exchanges of another store, as they are: run, field, value, pulse, and so on. Gives for each 1, or 0 if it is
-- there.
local made = {}
for i = 1, #ARGV, 4 do
  local new = call('HSETNX', T .. ':x:' .. ARGV[i], ARGV[i + 1], ARGV[i + 2])
  if new == 1 then call('ZADD', T .. ':xp:' .. ARGV[i], ARGV[i + 3], ARGV[i + 1]) end
  made[#made + 1] = new
end
return made
