-- A line of a run's history, if the run is there.
if call('EXISTS', T .. ':r:' .. ARGV[1]) == 1 then call('RPUSH', T .. ':re:' .. ARGV[1], ARGV[2]) end
return 1
