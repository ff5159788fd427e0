-- Blobs that no row names and nobody has touched for so many seconds: how long, how many. Their pieces stay for
-- so many seconds more (the third), for those who have begun to read them. Gives {blobs, bytes, 1 if there are
-- more}.
local old, many = string.format('%.6f', now() - ARGV[1]), tonumber(ARGV[2])
local found = call('ZRANGEBYSCORE', T .. ':unnamed', '-inf', '(' .. old, 'LIMIT', 0, many + 1)
local blobs, bytes = 0, 0
for i = 1, math.min(#found, many) do
  local place, size, pieces = string.match(call('HGET', T .. ':blob', found[i]) or '', '^(%S+) (%d+) (%d+)$')
  if place then
    for piece = 1, tonumber(pieces) do call('EXPIRE', T .. ':b:' .. place .. ':' .. piece, ARGV[3]) end
    blobs, bytes = blobs + 1, bytes + tonumber(size)
  end
  call('HDEL', T .. ':blob', found[i])
  call('HDEL', T .. ':touched', found[i])
  call('ZREM', T .. ':unnamed', found[i])
end
return {blobs, bytes, #found > many and 1 or 0}
