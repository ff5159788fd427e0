-- Replays: key, count, key, count, … Kept with the call: a mark of one that is gone has no place.
for i = 1, #ARGV, 2 do
  if call('EXISTS', row_of(ARGV[i])) == 1 then call('HINCRBY', T .. ':replays', ARGV[i], ARGV[i + 1]) end
end
return 1
