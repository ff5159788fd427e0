-- Dead for ever, if it still stands at this beat. 1: it is dead.
local count = call('HGET', T .. ':beats', ARGV[1])
if count == ARGV[2] then call('HSET', T .. ':beats', ARGV[1], 'dead') end
return (not count or count == ARGV[2] or count == 'dead') and 1 or 0
