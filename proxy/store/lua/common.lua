-- Put before every script. KEYS[1] is the store's tag, the hash tag that all names here begin with: one slot.
--
--   c:KEY        the row: a line that scripts read, the small part, the large parts (redis_rows.py)
--   e:KEY        its history                       replays    by key, how often it was replayed
--   all          keys by number of first sight     s:STATE    the same for each state but done and pending
--   doubts       keys in doubt by since when       pending    by key: its number, and who has claimed it
--   expiring     keys by when their time is over   named      by digest, how many rows name the blob
--   blob         by digest: where it lies, its size, its pieces      touched  when it was last put
--   unnamed      digests that no row names, by last touch            b:PLACE:N  a piece
--   r:RUN        the run                           re:RUN     its history
--   steps:RUN    its keys by pulse                 x:RUN, xp:RUN  its exchanges; the same by pulse
--   runs         by number    active: living ones by last activity    clear: expired, not yet empty
--   family:NAME  runs of one origin                tenants:NAME  who has a run of this name
--   m:ACCOUNT    what was taken out of a budget: by `METER BUCKET`, how much, the dearest call, until when
--   past         accounts and fields, with a line break between, by when they are past     purse:RUN  its accounts
--   accounts     all of them, by name
--   n (the last number given), secret, layout, beats (of owners), clock (the latest time that was told)
local T = KEYS[1]
local call = redis.call

local function row_of(key) return T .. ':c:' .. key end

-- The first line of a row; nil: there is none.
local function head_of(key)
  local text = call('GETRANGE', row_of(key), 0, 319)
  if text == '' then return nil end
  local version, born, state, number, pulse, seq, size, small, request_blob, answer_blob =
    string.match(text, '^(%d+) (%S+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+)\n')
  return {version = version, born = born, state = state, number = number, pulse = pulse, seq = seq,
          size = tonumber(size), small = tonumber(small), request_blob = request_blob,
          answer_blob = answer_blob, length = string.find(text, '\n', 1, true)}
end

-- The row without its large parts; one that does not begin as one as it is.
local function small_of(key)
  local head = head_of(key)
  if not head then return false end
  if not head.small then return call('GET', row_of(key)) end
  return call('GETRANGE', row_of(key), 0, head.length + head.small - 1)
end

local function is_open(state) return state == 'pending' or state == 'in_doubt' end
local function is_settled(state) return state == 'done' or state == 'released' or state == 'denied' end

local function doubt_of(number, key) return string.format('%016d', number) .. key end

-- Out of the index of its state.
local function unlist(key, head)
  if head.state == 'pending' then
    call('HDEL', T .. ':pending', key)
  elseif head.state ~= 'done' then
    call('ZREM', T .. ':s:' .. head.state, key)
    if head.state == 'in_doubt' then call('ZREM', T .. ':doubts', doubt_of(head.number, key)) end
  end
end

-- One row more, or one less, names a blob.
local function name_blob(digest, by)
  if digest == '-' then return end
  if call('HINCRBY', T .. ':named', digest, by) > 0 then
    call('ZREM', T .. ':unnamed', digest)
  else
    call('HDEL', T .. ':named', digest)
    local touched = call('HGET', T .. ':touched', digest)
    if touched then call('ZADD', T .. ':unnamed', touched, digest) end
  end
end

-- The row with all that belongs to it. The first thing a script does to a row is to look at its head.
local function remove(key, head)
  unlist(key, head)
  call('ZREM', T .. ':all', key)
  call('ZREM', T .. ':expiring', key)
  call('HDEL', T .. ':replays', key)
  name_blob(head.request_blob, -1)
  name_blob(head.answer_blob, -1)
  call('UNLINK', row_of(key), T .. ':e:' .. key)
  call('PUBLISH', T .. ':w:' .. key, '0')
end

-- An account that holds nothing any more.
local function forget_account(account)
  call('UNLINK', T .. ':m:' .. account)
  call('ZREM', T .. ':accounts', account)
end

-- One more pulse of a run, and its activity. The run is there.
local function beat(run, at)
  local name = T .. ':r:' .. run
  local pulse = call('HINCRBY', name, 'pulse', 1)
  local active = call('HGET', name, 'active_at')
  if tonumber(at) > tonumber(active) then
    call('HSET', name, 'active_at', at)
    if call('HGET', name, 'state') ~= 'expired' then call('ZADD', T .. ':active', at, run) end
  end
  return pulse
end

-- Runs last active before then that have no younger relative: a fork refers to what came before it. From which
-- place on; until so many are found, or so many were looked at. Gives them, and how many were looked at.
local function runs_over(before, from, many, most)
  local over, looked = {}, 0
  while (not many or #over < many) and (not most or looked < most) do
    local found = call('ZRANGEBYSCORE', T .. ':active', '-inf', '(' .. before, 'LIMIT', from + looked, 100)
    for _, run in ipairs(found) do
      local young = false
      for _, kin in ipairs(call('SMEMBERS', T .. ':family:' .. call('HGET', T .. ':r:' .. run, 'origin'))) do
        local active = call('ZSCORE', T .. ':active', kin)
        young = young or (active and tonumber(active) >= tonumber(before))
      end
      if not young and (not many or #over < many) then over[#over + 1] = run end
    end
    looked = looked + #found
    if #found < 100 then break end
  end
  return over, looked
end

-- How an exchange stands. A run that is not there, or over, has no exchanges.
local function serve(run, field, value, at)
  local state = call('HGET', T .. ':r:' .. run, 'state')
  if not state or state == 'expired' then return end
  local pulse = beat(run, at)
  call('HSET', T .. ':x:' .. run, field, value)
  call('ZADD', T .. ':xp:' .. run, pulse, field)
end

local function now()
  local time = call('TIME')
  return tonumber(time[1]) + tonumber(time[2]) / 1000000
end

-- Whether who asked has given up by now: then nothing is done any more, because nobody would know of it.
local function is_late(deadline)
  return now() > tonumber(deadline)
end
