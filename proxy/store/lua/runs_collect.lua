-- Runs that were last active before then, and have no younger relative, are over: first of all they are
-- expired, so that nobody goes on with one of which a part is gone. Then calls of one that is over are removed;
-- what is open stays. Before when, how many, how many bytes. Gives {keys, bytes, 1 if there is more to do, how
-- many are over now}.
local before, many, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

local over = runs_over(before, 0, many)
for _, run in ipairs(over) do
  local name = T .. ':r:' .. run
  call('HSET', name, 'state', 'expired')
  call('HINCRBY', name, 'version', 1)
  call('HINCRBY', name, 'pulse', 1)
  call('ZREM', T .. ':active', run)
  call('SADD', T .. ':clear', run)
  for _, account in ipairs(call('SMEMBERS', T .. ':purse:' .. run)) do
    for _, field in ipairs(call('HKEYS', T .. ':m:' .. account)) do
      call('ZREM', T .. ':past', account .. '\n' .. field)
    end
    forget_account(account)
  end
  call('UNLINK', T .. ':x:' .. run, T .. ':xp:' .. run, T .. ':purse:' .. run)
end

for _, run in ipairs(call('SMEMBERS', T .. ':clear')) do
  local steps, keys, bytes, open = T .. ':steps:' .. run, {}, 0, 0
  repeat
    local found = call('ZRANGE', steps, open, open + 99)
    for _, key in ipairs(found) do
      local head = head_of(key)
      if head and is_open(head.state) then
        open = open + 1
      elseif #keys < many and bytes <= most then
        if head then
          remove(key, head)
          keys[#keys + 1], bytes = key, bytes + head.size
        end
        call('ZREM', steps, key)
      end
    end
  until #found == 0 or #keys == many or bytes > most
  if #keys > 0 then return {keys, bytes, 1, #over} end
  if open == 0 then call('SREM', T .. ':clear', run) end
end
return {{}, 0, #over > 0 and 1 or 0, #over}
