-- A blob whose pieces lie at a place becomes one: digest, place, size, pieces, what was found damaged under that
-- name. Gives 1; 0 if a piece is missing. What is there already and whole is kept, and renewed: somebody is about
-- to name it.
local digest, place, size, pieces = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local function length_at(where, count)
  local length = 0
  for i = 1, count do length = length + call('STRLEN', T .. ':b:' .. where .. ':' .. i) end
  return length
end

local function drop(where, count)
  for i = 1, count do call('UNLINK', T .. ':b:' .. where .. ':' .. i) end
end

if length_at(place, pieces) ~= tonumber(size) then return 0 end
local known = call('HGET', T .. ':blob', digest)
local old_place, old_size, old_pieces = string.match(known or '', '^(%S+) (%d+) (%d+)$')
if old_place and known ~= ARGV[5] and length_at(old_place, tonumber(old_pieces)) == tonumber(old_size) then
  drop(place, pieces)
else
  if old_place then drop(old_place, tonumber(old_pieces)) end
  for i = 1, pieces do call('PERSIST', T .. ':b:' .. place .. ':' .. i) end
  call('HSET', T .. ':blob', digest, place .. ' ' .. size .. ' ' .. ARGV[4])
end
local touched = string.format('%.6f', now())
call('HSET', T .. ':touched', digest, touched)
if call('HEXISTS', T .. ':named', digest) == 0 then call('ZADD', T .. ':unnamed', touched, digest) end
return 1
