-- One more beat of this owner, unless it is dead or gone. Gives all owners: epoch, value, … where a value is
-- 'dead', or the beat and how long the owner may be silent.
local count, patience = string.match(call('HGET', T .. ':beats', ARGV[1]) or '', '^(%d+) (%S+)$')
if count then call('HSET', T .. ':beats', ARGV[1], string.format('%d %s', count + 1, patience)) end
return call('HGETALL', T .. ':beats')
