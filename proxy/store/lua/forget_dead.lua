-- Of these owners, those that are dead and have nothing pending any more: who is not known is dead anyway.
local needed = {}
for _, value in ipairs(call('HVALS', T .. ':pending')) do needed[string.match(value, ' (.*)$')] = true end
for _, epoch in ipairs(ARGV) do
  if not needed[epoch] and call('HGET', T .. ':beats', epoch) == 'dead' then call('HDEL', T .. ':beats', epoch) end
end
return 1
