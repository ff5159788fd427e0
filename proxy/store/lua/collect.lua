-- Settled calls whose time was over before then, the longest first: now, how many, how many bytes of them.
-- Gives {keys, bytes, 1 if there are more}. What should not be in the index is taken out of it.
local now, many, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local keys, bytes = {}, 0
while true do
  local found = call('ZRANGEBYSCORE', T .. ':expiring', '-inf', '(' .. now, 'LIMIT', 0, 1)
  if #found == 0 then return {keys, bytes, 0} end
  local key = found[1]
  local head = head_of(key)
  if not head or not is_settled(head.state) then
    call('ZREM', T .. ':expiring', key)
  else
    if #keys == many or (#keys > 0 and bytes + head.size > most) then return {keys, bytes, 1} end
    remove(key, head)
    keys[#keys + 1], bytes = key, bytes + head.size
  end
end
