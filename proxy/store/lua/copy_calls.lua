-- Calls of another store, as they are: for each key, version, born, state, pulse, seq, size, small, large, expires,
-- since, request blob, answer blob, run, owner, replays, how many lines, the lines. Gives for each 1, or 0 if a row
-- of that key is there: nothing of it is touched.
local made, i = {}, 1
while i <= #ARGV do
  local key, version, born, state, pulse, seq = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5]
  local size, small, large, expires, since = ARGV[i + 6], ARGV[i + 7], ARGV[i + 8], ARGV[i + 9], ARGV[i + 10]
  local request_blob, answer_blob, run, owner = ARGV[i + 11], ARGV[i + 12], ARGV[i + 13], ARGV[i + 14]
  local replays, lines = ARGV[i + 15], tonumber(ARGV[i + 16])
  if call('EXISTS', row_of(key)) == 1 then
    made[#made + 1] = 0
  else
    local number = string.format('%d', call('INCR', T .. ':n'))
    call('ZADD', T .. ':all', number, key)
    name_blob(request_blob, 1)
    name_blob(answer_blob, 1)
    call('SET', row_of(key), table.concat({version, born, state, number, pulse, seq, size,
         string.format('%d', #small), request_blob, answer_blob}, ' ') .. '\n' .. small .. large)
    for n = 1, lines do call('RPUSH', T .. ':e:' .. key, ARGV[i + 16 + n]) end
    if state == 'pending' then
      call('HSET', T .. ':pending', key, number .. ' ' .. owner)
    elseif state ~= 'done' then
      call('ZADD', T .. ':s:' .. state, number, key)
      if state == 'in_doubt' then call('ZADD', T .. ':doubts', since, doubt_of(number, key)) end
    end
    if expires ~= '' then call('ZADD', T .. ':expiring', expires, key) end
    if run ~= '' then call('ZADD', T .. ':steps:' .. run, pulse, key) end
    if replays ~= '0' then call('HSET', T .. ':replays', key, replays) end
    made[#made + 1] = 1
  end
  i = i + 17 + lines
end
return made
