-- Runs of another store, as they are: for each run, tenant, name, origin, created, active, state, version, pulse,
-- last place, record, cleared, how many lines, the lines. Gives for each 1, or 0 if it is there.
local made, i = {}, 1
while i <= #ARGV do
  local run, tenant, name, origin, active_at, state = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 5], ARGV[i + 6]
  local at, lines = T .. ':r:' .. run, tonumber(ARGV[i + 12])
  if call('EXISTS', at) == 1 then
    made[#made + 1] = 0
  else
    local number = string.format('%d', call('INCR', T .. ':n'))
    call('HSET', at, 'tenant', tenant, 'name', name, 'created_at', ARGV[i + 4], 'active_at', active_at,
         'state', state, 'version', ARGV[i + 7], 'pulse', ARGV[i + 8], 'last_seq', ARGV[i + 9],
         'record', ARGV[i + 10], 'number', number, 'origin', origin)
    call('ZADD', T .. ':runs', number, run)
    if state ~= 'expired' then
      call('ZADD', T .. ':active', active_at, run)
    elseif ARGV[i + 11] == '0' then
      call('SADD', T .. ':clear', run)
    end
    call('SADD', T .. ':family:' .. origin, run)
    call('SADD', T .. ':tenants:' .. name, tenant)
    for n = 1, lines do call('RPUSH', T .. ':re:' .. run, ARGV[i + 12 + n]) end
    made[#made + 1] = 1
  end
  i = i + 13 + lines
end
return made
