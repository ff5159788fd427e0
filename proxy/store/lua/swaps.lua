-- Compare and swap rows, each on its own: until when, then 23 arguments for each. Gives for each {1, seq},
-- {0, present row or nil}, {2, what the account holds} (over a limit: nothing was done), {-1} (no such run),
-- {-2} (too late: nothing was done) or {-3, what went wrong}.
local WIDTH = 23
local FOR_GOOD = 9007199254740991

-- What the account holds, if a charge would pass a limit. A charge: account, run, and for each posting meter,
-- bucket, amount, peak, since, most (false: none), expires.
local function exceeded(charge)
  local held = call('HGETALL', T .. ':m:' .. charge[1])
  for _, posting in ipairs(charge[3]) do
    local meter, _, amount, _, since, most = unpack(posting)
    local used = amount
    for i = 1, most and #held or 0, 2 do
      local of, bucket = string.match(held[i], '^(%S+) (%d+)$')
      if of == meter and tonumber(bucket) > since then
        used = used + tonumber(string.match(held[i + 1], '^%d+'))
      end
    end
    if most and used > most then return held end
  end
  return nil
end

local function take(charge)
  local account, run = charge[1], charge[2]
  for _, posting in ipairs(charge[3]) do
    local meter, bucket, amount, peak, _, most, expires = unpack(posting)
    local name, field = T .. ':m:' .. account, meter .. ' ' .. string.format('%.0f', bucket)
    local had = call('HGET', name, field)
    if had or most then
      local was, dearest, till = string.match(had or '0 0 0', '^(%d+) (%d+) (%d+)$')
      if most then till = math.max(tonumber(till), expires) end
      call('HSET', name, field, string.format('%.0f %.0f %.0f', math.max(0, tonumber(was) + amount),
           math.max(tonumber(dearest), peak), till))
      if not had then call('ZADD', T .. ':accounts', 0, account) end
      if most and expires < FOR_GOOD then call('ZADD', T .. ':past', till, account .. '\n' .. field) end
      if most and run ~= '' then call('SADD', T .. ':purse:' .. run, account) end
    end
  end
end

local function swap(key, expected, born, version, state, owner, number_of_size, small, large, line, expires,
                    since, request_blob, answer_blob, at, run, takes_seq, seq, served_run, served_field,
                    served_value, served_at, charge)
  local had = head_of(key)
  if (had and had.version or '0') ~= expected or (had and had.born ~= born) then
    return {0, call('GET', row_of(key))}
  end
  charge = charge ~= '' and cjson.decode(charge)
  local run_state = run ~= '' and call('HGET', T .. ':r:' .. run, 'state')
  if run ~= '' and not run_state then return {-1} end
  if run_state == 'expired' and takes_seq == '1' then return {0, call('GET', row_of(key))} end
  local held = charge and exceeded(charge)
  if held then return {2, held} end
  local pulse = 0
  if run ~= '' then
    pulse = beat(run, at)
    if takes_seq == '1' then seq = call('HINCRBY', T .. ':r:' .. run, 'last_seq', 1) end
    call('ZADD', T .. ':steps:' .. run, pulse, key)
  end
  local number
  if had then
    number = had.number
    unlist(key, had)
    if had.request_blob ~= request_blob then name_blob(had.request_blob, -1) end
    if had.answer_blob ~= answer_blob then name_blob(had.answer_blob, -1) end
  else
    number = string.format('%d', call('INCR', T .. ':n'))
    call('ZADD', T .. ':all', number, key)
  end
  if not had or had.request_blob ~= request_blob then name_blob(request_blob, 1) end
  if not had or had.answer_blob ~= answer_blob then name_blob(answer_blob, 1) end

  local row = table.concat({version, born, state, number, string.format('%d', pulse), string.format('%d', seq),
                            number_of_size, string.format('%d', #small), request_blob, answer_blob}, ' ')
              .. '\n' .. small .. large
  call('SET', row_of(key), row)
  call('RPUSH', T .. ':e:' .. key, line)
  if state == 'pending' then
    call('HSET', T .. ':pending', key, number .. ' ' .. owner)
  elseif state ~= 'done' then
    call('ZADD', T .. ':s:' .. state, number, key)
    if state == 'in_doubt' then call('ZADD', T .. ':doubts', since, doubt_of(number, key)) end
  end
  if expires ~= '' then
    call('ZADD', T .. ':expiring', expires, key)
  elseif had then
    call('ZREM', T .. ':expiring', key)
  end
  if served_field ~= '' then serve(served_run, served_field, served_value, served_at) end
  if charge then take(charge) end
  call('PUBLISH', T .. ':w:' .. key, version)
  return {1, tonumber(seq)}
end

local late = is_late(ARGV[1])
local replies = {}
for first = 2, #ARGV, WIDTH do
  if late then
    replies[#replies + 1] = {-2}
  else
    local done, reply = pcall(swap, unpack(ARGV, first, first + WIDTH - 1))
    if not done then reply = {-3, type(reply) == 'table' and reply.err or tostring(reply)} end
    replies[#replies + 1] = reply
  end
end
return replies
