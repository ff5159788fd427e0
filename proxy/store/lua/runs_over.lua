-- Runs that collecting would clear: before when, from which place on, how many to look at. Gives how many were
-- looked at, then their names; from the first place on also those that are expired and not yet empty.
local over, looked = runs_over(ARGV[1], tonumber(ARGV[2]), nil, tonumber(ARGV[3]))
if ARGV[2] == '0' then
  for _, run in ipairs(call('SMEMBERS', T .. ':clear')) do over[#over + 1] = run end
end
table.insert(over, 1, looked)
return over
