-- Runs that collecting would end: before when, from which place on, how many to look at. Gives how many were
-- looked at, then their names.
local over, looked = runs_over(ARGV[1], tonumber(ARGV[2]), nil, tonumber(ARGV[3]))
table.insert(over, 1, looked)
return over
