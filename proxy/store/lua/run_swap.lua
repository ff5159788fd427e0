-- Compare and swap a run: 1 or 0, or -2 (too late). Its counters and its activity are the store's own.
local run, expected, tenant, name, origin = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local created_at, active_at, state, version, pulse, last_seq, record, line =
  ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local at = T .. ':r:' .. run

if is_late(ARGV[1]) then return -2 end
if (call('HGET', at, 'version') or '0') ~= expected then return 0 end
if expected == '0' then
  local number = string.format('%d', call('INCR', T .. ':n'))
  call('HSET', at, 'tenant', tenant, 'name', name, 'created_at', created_at, 'active_at', active_at,
       'state', state, 'version', version, 'pulse', pulse, 'last_seq', last_seq, 'record', record,
       'number', number, 'origin', origin)
  call('ZADD', T .. ':runs', number, run)
  call('ZADD', T .. ':active', active_at, run)
  call('SADD', T .. ':family:' .. origin, run)
  call('SADD', T .. ':tenants:' .. name, tenant)
else
  call('HSET', at, 'state', state, 'version', version, 'record', record)
  beat(run, active_at)
end
if line ~= '' then call('RPUSH', T .. ':re:' .. run, line) end
return 1
