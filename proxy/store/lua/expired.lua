-- What collect.lua would remove: now, from which place in the index, how many to look at. Gives how many were
-- looked at, then for each that would go its size and the blobs that it names.
local found = call('ZRANGEBYSCORE', T .. ':expiring', '-inf', '(' .. ARGV[1], 'LIMIT', ARGV[2], ARGV[3])
local going = {#found}
for _, key in ipairs(found) do
  local head = head_of(key)
  if head and is_settled(head.state) then
    going[#going + 1] = {head.size, head.request_blob, head.answer_blob}
  end
end
return going
