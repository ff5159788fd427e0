-- The latest time that any process has told: one more is told.
local mark = call('GET', T .. ':clock')
if not mark or tonumber(ARGV[1]) > tonumber(mark) then
  mark = ARGV[1]
  call('SET', T .. ':clock', mark)
end
return mark
