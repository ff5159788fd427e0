-- What has changed in a run since a pulse: run, attempt (as its fields begin with it, or ''), pulse.
-- Gives nil, or {the run's fields, small rows, exchange fields and values in turn}.
local run, attempt, since = ARGV[1], ARGV[2], ARGV[3]
local fields = call('HMGET', T .. ':r:' .. run, 'tenant', 'name', 'created_at', 'active_at', 'state', 'version',
                    'pulse', 'last_seq', 'record', 'number')
if not fields[1] then return false end
local rows, exchanges = {}, {}
if fields[7] ~= since then
  for _, key in ipairs(call('ZRANGEBYSCORE', T .. ':steps:' .. run, '(' .. since, '+inf')) do
    rows[#rows + 1] = key
    rows[#rows + 1] = small_of(key)
  end
  if attempt ~= '' then
    for _, field in ipairs(call('ZRANGEBYSCORE', T .. ':xp:' .. run, '(' .. since, '+inf')) do
      if string.sub(field, 1, #attempt) == attempt then
        exchanges[#exchanges + 1] = field
        exchanges[#exchanges + 1] = call('HGET', T .. ':x:' .. run, field)
      end
    end
  end
end
return {fields, rows, exchanges}
