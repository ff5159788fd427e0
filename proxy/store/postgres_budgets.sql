-- Version 2: budgets. Once released this file is never edited: the next version is a file of its own.

-- What was taken out of budgets: by account (a rule's, of a run, or with run = '' of a tenant), by what is
-- counted, and by bucket, which is named by its end. Times are milliseconds; 2^53 - 1: for good.
CREATE TABLE semel.spending (
  tenant text NOT NULL,
  run text NOT NULL,
  upstream text NOT NULL,
  rule text NOT NULL,
  meter text NOT NULL,
  bucket bigint NOT NULL,
  amount bigint NOT NULL CHECK (amount >= 0),
  peak bigint NOT NULL,
  expires bigint NOT NULL,
  PRIMARY KEY (tenant, run, upstream, rule, meter, bucket)
) WITH (fillfactor = 70);
CREATE INDEX spending_past ON semel.spending (expires) WHERE expires < 9007199254740991;

-- What a job takes. `most` NULL: no reservation, what was reserved is set right.
CREATE TYPE semel.posting AS (
  job int, tenant text, run text, upstream text, rule text, meter text, bucket bigint, amount bigint, peak bigint,
  since bigint, most bigint, expires bigint
);

-- Until the commit nobody else takes anything out of these accounts: a sum over rows needs more than locks on
-- rows. In one order, so that nobody waits in a circle. Two accounts with one number merely wait for each other.
CREATE FUNCTION semel.lock_accounts(postings semel.posting[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  number int;
BEGIN
  FOR number IN SELECT DISTINCT hashtext(concat_ws(E'\n', tenant, run, upstream, rule)) FROM unnest(postings) ORDER BY 1
  LOOP
    PERFORM pg_advisory_xact_lock(x'53454D45'::int, number);
  END LOOP;
END $$;

-- What the account holds, as JSON, if a job's postings would pass a limit; else NULL. They have one account.
CREATE FUNCTION semel.exceeded(own semel.posting[]) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  PERFORM 1 FROM unnest(own) AS p WHERE p.most IS NOT NULL AND p.most < p.amount + (
    SELECT coalesce(sum(s.amount), 0) FROM semel.spending AS s
    WHERE s.tenant = p.tenant AND s.run = p.run AND s.upstream = p.upstream AND s.rule = p.rule
      AND s.meter = p.meter AND s.bucket > p.since
  );
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  RETURN (
    SELECT coalesce(json_agg(json_build_array(s.meter, s.bucket, s.amount, s.peak) ORDER BY s.meter, s.bucket), '[]')
    FROM semel.spending AS s
    WHERE (s.tenant, s.run, s.upstream, s.rule) = (own[1].tenant, own[1].run, own[1].upstream, own[1].rule)
  )::text;
END $$;

CREATE FUNCTION semel.take(own semel.posting[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO semel.spending AS s (tenant, run, upstream, rule, meter, bucket, amount, peak, expires)
    SELECT tenant, run, upstream, rule, meter, bucket, amount, peak, expires FROM unnest(own) WHERE most IS NOT NULL
    ON CONFLICT (tenant, run, upstream, rule, meter, bucket) DO UPDATE SET amount = s.amount + excluded.amount,
      peak = greatest(s.peak, excluded.peak), expires = greatest(s.expires, excluded.expires);
  UPDATE semel.spending AS s SET amount = greatest(0, s.amount + p.amount), peak = greatest(s.peak, p.peak)
    FROM unnest(own) AS p WHERE p.most IS NULL AND s.tenant = p.tenant AND s.run = p.run
      AND s.upstream = p.upstream AND s.rule = p.rule AND s.meter = p.meter AND s.bucket = p.bucket;
END $$;

-- What is past, and what belonged to runs that are over; what somebody else is at is left to them. How many.
CREATE FUNCTION semel.collect_spending(now_is bigint, portion int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  gone bigint;
BEGIN
  PERFORM semel.be_durable();
  DELETE FROM semel.spending WHERE ctid = ANY (array(
    SELECT s.ctid FROM semel.spending AS s
    WHERE (s.expires < 9007199254740991 AND s.expires < now_is) OR (s.run <> '' AND EXISTS (
      SELECT 1 FROM semel.runs AS r WHERE r.tenant = s.tenant AND r.name = s.run AND r.state = 'expired'
    )) LIMIT portion FOR UPDATE OF s SKIP LOCKED
  ));
  GET DIAGNOSTICS gone = ROW_COUNT;
  RETURN gone;
END $$;

-- As in version 1, with what is taken out of budgets. `outcome`: also exceeded; then `held` is what the account
-- holds, and nothing was written.
CREATE FUNCTION semel.swap(jobs semel.job[], servings semel.serving[], postings semel.posting[])
RETURNS TABLE (outcome text, place bigint, held text) LANGUAGE plpgsql AS $$
DECLARE
  j semel.job;
  r record;
  made bigint;
  beat bigint;
  n int := 0;
  winners int[] := '{}';
  before text;
  entered text[] := '{}';
  left_behind text[] := '{}';
  own semel.posting[];
BEGIN
  PERFORM semel.be_durable();
  -- Before every lock on a row, by everybody.
  IF postings <> '{}' THEN
    PERFORM semel.lock_accounts(postings);
  END IF;
  FOREACH j IN ARRAY jobs LOOP
    n := n + 1;
    outcome := 'lost';
    held := NULL;
    own := CASE WHEN postings = '{}' THEN postings ELSE array(SELECT p FROM unnest(postings) AS p WHERE p.job = n) END;
    place := j.seq;
    beat := 0;
    IF j.run <> '' THEN
      -- Until the commit nobody else has a pulse or a place in this run.
      SELECT id, state, pulse, last_seq INTO r FROM semel.runs
        WHERE tenant = j.tenant AND name = j.run FOR UPDATE;
      IF NOT FOUND THEN
        outcome := 'absent';
        RETURN NEXT;
        CONTINUE;
      END IF;
      IF j.claims AND r.state = 'expired' THEN -- nothing is begun in it any more
        RETURN NEXT;
        CONTINUE;
      END IF;
      beat := r.pulse + 1;
      IF j.claims THEN
        place := r.last_seq + 1;
      END IF;
    END IF;
    IF j.version = 1 THEN
      IF own <> '{}' THEN
        -- Whoever would lose anyway is told of the row: a budget that is used up keeps nobody from an answer.
        PERFORM 1 FROM semel.calls AS c WHERE c.key = j.key;
        IF NOT FOUND THEN
          held := semel.exceeded(own);
        END IF;
        IF held IS NOT NULL THEN
          outcome := 'exceeded';
          RETURN NEXT;
          CONTINUE;
        END IF;
      END IF;
      INSERT INTO semel.calls (key, fingerprint, named_by, tenant, run, attempt, seq, occurrence, upstream, rule,
          tool, safe, state, version, fence, owner, created_at, sent_at, settled_at, expires_at, sends, unresolved,
          request_blob, answer_status, answer_size, answer_recorded_at, answer_place, answer_blob,
          answer_why_nowhere, doubt_since, doubt_reason, doubt_status, doubt_excerpt, record_version, request,
          answer_head, answer_body, born, cost_usd, in_run, terms, pulse)
        VALUES (j.key, j.fingerprint, j.named_by, j.tenant, j.run, j.attempt, place, j.occurrence, j.upstream,
          j.rule, j.tool, j.safe, j.state, j.version, j.fence, j.owner, j.created_at, j.sent_at, j.settled_at,
          j.expires_at, j.sends, j.unresolved, j.request_blob, j.answer_status, j.answer_size,
          j.answer_recorded_at, j.answer_place, j.answer_blob, j.answer_why_nowhere, j.doubt_since,
          j.doubt_reason, j.doubt_status, j.doubt_excerpt, j.record_version, j.request, j.answer_head,
          j.answer_body, j.born, j.cost_usd, j.in_run, j.terms, beat)
        ON CONFLICT (key) DO NOTHING RETURNING id, NULL INTO made, before;
    ELSE
      -- The guard: the version that the caller saw, of the row that it saw.
      SELECT c.id, c.state INTO made, before FROM semel.calls AS c
        WHERE c.key = j.key AND c.version = j.version - 1 AND c.born = j.born FOR UPDATE;
      IF NOT FOUND THEN
        RETURN NEXT;
        CONTINUE;
      END IF;
      IF own <> '{}' THEN
        held := semel.exceeded(own);
        IF held IS NOT NULL THEN
          outcome := 'exceeded';
          RETURN NEXT;
          CONTINUE;
        END IF;
      END IF;
      UPDATE semel.calls AS c SET fingerprint = j.fingerprint, named_by = j.named_by, tenant = j.tenant,
          run = j.run, attempt = j.attempt, seq = place, occurrence = j.occurrence, upstream = j.upstream,
          rule = j.rule, tool = j.tool, safe = j.safe, state = j.state, version = j.version, fence = j.fence,
          owner = j.owner, created_at = j.created_at, sent_at = j.sent_at, settled_at = j.settled_at,
          expires_at = j.expires_at, sends = j.sends, unresolved = j.unresolved, request_blob = j.request_blob,
          answer_status = j.answer_status, answer_size = j.answer_size,
          answer_recorded_at = j.answer_recorded_at, answer_place = j.answer_place, answer_blob = j.answer_blob,
          answer_why_nowhere = j.answer_why_nowhere, doubt_since = j.doubt_since, doubt_reason = j.doubt_reason,
          doubt_status = j.doubt_status, doubt_excerpt = j.doubt_excerpt, record_version = j.record_version,
          request = j.request, answer_head = j.answer_head, answer_body = j.answer_body, cost_usd = j.cost_usd,
          in_run = j.in_run, terms = j.terms, pulse = beat
        WHERE c.id = made AND c.key = j.key; -- by the key, which names one partition where there are some
    END IF;
    IF FOUND THEN
      outcome := 'won';
      winners := winners || n;
      entered := entered || j.state;
      left_behind := left_behind || before;
      INSERT INTO semel.events (call, at, actor, event, from_state, to_state, why, fence)
        VALUES (made, j.line_at, j.actor, j.event, j.from_state, j.to_state, j.why, j.line_fence);
      IF j.run <> '' THEN
        UPDATE semel.runs SET pulse = beat, active_at = greatest(active_at, j.line_at),
            last_seq = CASE WHEN j.claims THEN place ELSE last_seq END
          WHERE id = r.id;
      END IF;
      IF own <> '{}' THEN
        PERFORM semel.take(own);
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
  IF winners <> '{}' THEN
    INSERT INTO semel.counts (state, n) SELECT state, sum(d) FROM (
      SELECT unnest(entered), 1 UNION ALL SELECT unnest(left_behind), -1
    ) AS moved (state, d) WHERE state IS NOT NULL GROUP BY state HAVING sum(d) <> 0;
  END IF;
  IF servings <> '{}' THEN -- only winners serve somebody; in a fork it is another run than the row's
    PERFORM semel.serve(array(SELECT s FROM unnest(servings) AS s WHERE s.job = ANY (winners)));
  END IF;
END $$;

-- Of a process of the version before, which knows of no budgets.
CREATE OR REPLACE FUNCTION semel.swap(jobs semel.job[], servings semel.serving[])
RETURNS TABLE (outcome text, place bigint) LANGUAGE sql AS $$
  SELECT outcome, place FROM semel.swap(jobs, servings, '{}'::semel.posting[]);
$$;
