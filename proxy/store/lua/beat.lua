-- One more beat of this owner, unless it is dead or gone. Gives all owners: epoch, count or 'dead', …
local count = call('HGET', T .. ':beats', ARGV[1])
if count and count ~= 'dead' then call('HINCRBY', T .. ':beats', ARGV[1], 1) end
return call('HGETALL', T .. ':beats')
