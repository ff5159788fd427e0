-- Exchanges: run, field, value, at, and so on.
for i = 1, #ARGV, 4 do serve(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]) end
return 1
