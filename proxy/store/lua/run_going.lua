-- What collecting would remove of a run that is over: run, from which place on, how many to look at. Gives how
-- many were looked at, then for each that would go its size and the blobs that it names.
local found = call('ZRANGE', T .. ':steps:' .. ARGV[1], ARGV[2], ARGV[2] + ARGV[3] - 1)
local going = {#found}
for _, key in ipairs(found) do
  local head = head_of(key)
  if head and not is_open(head.state) then
    going[#going + 1] = {head.size, head.request_blob, head.answer_blob}
  end
end
return going
