-- Runs that were last active before then, and have no younger relative, are over: first of all they are
-- expired, so that nobody goes on with one of which a part is gone. Then calls of one that is over are removed.
-- before, how many, how many bytes; or 'dry' to be told. Gives {keys, bytes, more}; dry: {size, blobs …}.
local before, many, most, dry = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == 'dry'

local function has_young_kin(run)
  local origin = call('HGET', T .. ':r:' .. run, 'origin')
  for _, kin in ipairs(call('SMEMBERS', T .. ':family:' .. origin)) do
    local active = call('ZSCORE', T .. ':active', kin)
    if active and tonumber(active) >= tonumber(before) then return true end
  end
  return false
end

local over, from = {}, 0
while dry or #over < many do
  local found = call('ZRANGEBYSCORE', T .. ':active', '-inf', '(' .. before, 'LIMIT', from, 100)
  if #found == 0 then break end
  for _, run in ipairs(found) do
    if (dry or #over < many) and not has_young_kin(run) then over[#over + 1] = run end
  end
  from = from + #found
end

if dry then
  for _, run in ipairs(call('SMEMBERS', T .. ':clear')) do over[#over + 1] = run end
  local going = {}
  for _, run in ipairs(over) do
    for _, key in ipairs(call('ZRANGE', T .. ':steps:' .. run, 0, -1)) do
      local head = head_of(key)
      if head and not is_open(head.state) then
        going[#going + 1] = {head.size, head.request_blob, head.answer_blob}
      end
    end
  end
  return going
end

for _, run in ipairs(over) do
  local name = T .. ':r:' .. run
  call('HSET', name, 'state', 'expired')
  call('HINCRBY', name, 'version', 1)
  call('HINCRBY', name, 'pulse', 1)
  call('ZREM', T .. ':active', run)
  call('SADD', T .. ':clear', run)
  call('UNLINK', T .. ':x:' .. run, T .. ':xp:' .. run)
end

for _, run in ipairs(call('SMEMBERS', T .. ':clear')) do
  local keys, bytes, left = {}, 0, 0
  for _, key in ipairs(call('ZRANGE', T .. ':steps:' .. run, 0, -1)) do
    local head = head_of(key)
    if #keys == many or (#keys > 0 and bytes > most) then break end
    if not head then
      call('ZREM', T .. ':steps:' .. run, key)
    elseif is_open(head.state) then
      left = left + 1
    else
      remove(key, head)
      call('ZREM', T .. ':steps:' .. run, key)
      keys[#keys + 1], bytes = key, bytes + head.size
    end
  end
  if #keys > 0 then return {keys, bytes, 1} end
  if left == 0 then call('SREM', T .. ':clear', run) end
end
return {{}, 0, #over > 0 and 1 or 0}
