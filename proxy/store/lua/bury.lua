-- Dead for ever, if it still stands at this beat. 1: it is dead.
local value = call('HGET', T .. ':beats', ARGV[1])
if not value or value == 'dead' then return 1 end
if string.match(value, '^%d+') ~= ARGV[2] then return 0 end
call('HSET', T .. ':beats', ARGV[1], 'dead')
return 1
