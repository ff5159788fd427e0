-- What blobs_collect.lua would remove when rows are gone that name these blobs: how long, then digest, times, …
-- Gives {blobs, bytes}.
local old = now() - ARGV[1]
local blobs, bytes = 0, 0

local function count(digest)
  local place, size = string.match(call('HGET', T .. ':blob', digest) or '', '^(%S+) (%d+) ')
  if place then blobs, bytes = blobs + 1, bytes + tonumber(size) end
end

for _, digest in ipairs(call('ZRANGEBYSCORE', T .. ':unnamed', '-inf', '(' .. string.format('%.6f', old))) do
  count(digest)
end
for i = 2, #ARGV, 2 do
  local named = tonumber(call('HGET', T .. ':named', ARGV[i]) or 0)
  local touched = tonumber(call('HGET', T .. ':touched', ARGV[i]) or old)
  if named > 0 and named <= tonumber(ARGV[i + 1]) and touched < old then count(ARGV[i]) end
end
return {blobs, bytes}
