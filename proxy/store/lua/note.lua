-- A line of history, if the row is there: history is kept with its call.
if call('EXISTS', row_of(ARGV[1])) == 1 then call('RPUSH', T .. ':e:' .. ARGV[1], ARGV[2]) end
return 1
