-- Version 3: runs and bodies go without a trace, and whoever reads them meanwhile reads on.

-- One more pulse for each run among them. A run that is not there, or over, is passed over.
CREATE OR REPLACE FUNCTION semel.serve(servings semel.serving[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  beaten record;
BEGIN
  FOR beaten IN
    SELECT r.id, r.pulse + 1 AS pulse, s.tenant, s.run, s.at FROM (
      SELECT tenant, run, max(at) AS at FROM unnest(servings) GROUP BY tenant, run
    ) AS s JOIN semel.runs AS r ON r.tenant = s.tenant AND r.name = s.run AND r.state <> 'expired'
    ORDER BY s.tenant, s.run FOR UPDATE OF r
  LOOP
    INSERT INTO semel.exchanges AS x (run, attempt, call, number, owner, fence, "end", final, credentials, tokens,
        how, at, pulse)
      SELECT DISTINCT ON (attempt, call, number, owner)
        beaten.id, attempt, call, number, owner, fence, "end", final, credentials, tokens, how, at, beaten.pulse
      FROM unnest(servings) WITH ORDINALITY AS s
        (job, tenant, run, call, number, attempt, fence, owner, "end", final, credentials, tokens, how, at, place)
      WHERE s.tenant = beaten.tenant AND s.run = beaten.run
      ORDER BY attempt, call, number, owner, place DESC
      ON CONFLICT (run, attempt, call, number, owner) DO UPDATE SET
        fence = excluded.fence, "end" = excluded."end", final = excluded.final, how = excluded.how,
        pulse = excluded.pulse;
    UPDATE semel.runs SET pulse = beaten.pulse, active_at = greatest(active_at, beaten.at) WHERE id = beaten.id;
  END LOOP;
END $$;

-- Runs whose time is over. A fork refers to what came before it, so relatives go together.
DROP FUNCTION semel.collect_runs(float8, int, bigint);
CREATE FUNCTION semel.collect_runs(before float8, portion int, most_bytes bigint,
  OUT keys bytea[], OUT bytes bigint, OUT more boolean, OUT ended bigint) LANGUAGE plpgsql AS $$
DECLARE
  ids bigint[];
  r record;
BEGIN
  PERFORM semel.be_durable();
  keys := '{}';
  bytes := 0;
  -- First of all, so that nobody goes on with a run of which a part is gone.
  UPDATE semel.runs SET state = 'expired', version = version + 1, pulse = pulse + 1 WHERE id IN (
    SELECT id FROM semel.runs AS old WHERE state <> 'expired' AND active_at < before AND NOT EXISTS (
      SELECT 1 FROM semel.runs AS kin WHERE kin.tenant = old.tenant AND kin.root = old.root
        AND kin.state <> 'expired' AND kin.active_at >= before
    ) ORDER BY active_at LIMIT portion FOR UPDATE SKIP LOCKED
  );
  GET DIAGNOSTICS ended = ROW_COUNT;
  more := ended > 0;
  -- What is open stays until it is settled, and goes then.
  SELECT id, tenant, name INTO r FROM semel.runs WHERE state = 'expired' AND NOT cleared AND EXISTS (
    SELECT 1 FROM semel.calls WHERE run <> '' AND calls.tenant = runs.tenant AND run = runs.name
      AND calls.state NOT IN ('pending', 'in_doubt')
  ) LIMIT 1 FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN
    -- A fork may have been served by its parent's calls alone.
    SELECT id INTO r FROM semel.runs WHERE state = 'expired' AND NOT cleared
      AND EXISTS (SELECT 1 FROM semel.exchanges WHERE run = runs.id) LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF FOUND THEN -- they are far smaller than calls
      DELETE FROM semel.exchanges WHERE run = r.id AND (attempt, call, number, owner) IN (
        SELECT attempt, call, number, owner FROM semel.exchanges WHERE run = r.id LIMIT 5 * portion
      );
      more := true;
    ELSE
      UPDATE semel.runs SET cleared = true WHERE state = 'expired' AND NOT cleared AND NOT EXISTS (
        SELECT 1 FROM semel.calls WHERE run <> '' AND calls.tenant = runs.tenant AND run = runs.name
      );
    END IF;
    RETURN;
  END IF;
  WITH found AS (
    SELECT id, key, pulse,
      length(request) + coalesce(length(answer_head), 0) + coalesce(length(answer_body), 0) AS size
    FROM semel.calls WHERE run <> '' AND tenant = r.tenant AND run = r.name
      AND state NOT IN ('pending', 'in_doubt') ORDER BY pulse LIMIT portion FOR UPDATE SKIP LOCKED
  ), summed AS (
    SELECT *, sum(size) OVER oldest AS total, row_number() OVER oldest AS place FROM found
    WINDOW oldest AS (ORDER BY pulse, id ROWS UNBOUNDED PRECEDING)
  )
  SELECT array_agg(id), coalesce(array_agg(key), '{}'), coalesce(sum(size), 0) INTO ids, keys, bytes
    FROM summed WHERE place = 1 OR total <= most_bytes;
  PERFORM semel.remove_calls(ids);
  more := true;
END $$;

-- A part of a round over the blobs, in the order of their names: those that no row names and nobody has
-- touched for so long. Their parts stay as long again, for those who have begun to read them. `last` is where
-- the next part begins; NULL: the round is over.
CREATE OR REPLACE FUNCTION semel.collect_blobs(after text, portion int, look_at int, untouched interval,
  OUT blobs bigint, OUT bytes bigint, OUT last text) LANGUAGE plpgsql AS $$
DECLARE
  gone bigint[];
BEGIN
  PERFORM semel.be_durable();
  SELECT max(digest) INTO last FROM (
    SELECT digest FROM semel.blobs WHERE digest > after ORDER BY digest LIMIT look_at
  ) AS looked HAVING count(*) = look_at;
  WITH unnamed AS (
    SELECT digest FROM semel.blobs AS b
    WHERE digest > after AND (last IS NULL OR digest <= last) AND touched_at < now() - untouched
      AND NOT EXISTS (SELECT 1 FROM semel.calls WHERE request_blob <> '' AND request_blob = b.digest)
      AND NOT EXISTS (SELECT 1 FROM semel.calls WHERE answer_blob <> '' AND answer_blob = b.digest)
    ORDER BY digest LIMIT portion FOR UPDATE SKIP LOCKED
  ), removed AS (
    DELETE FROM semel.blobs WHERE digest IN (SELECT digest FROM unnamed) RETURNING digest, upload, size
  )
  SELECT count(*), coalesce(sum(size), 0), array_agg(upload), CASE WHEN count(*) = portion THEN max(digest) ELSE last END
    INTO blobs, bytes, gone, last FROM removed;
  INSERT INTO semel.uploads (id) SELECT unnest(gone);
  -- What no name leads to any more, and what none ever led to: whoever wrote it has died.
  gone := array(
    SELECT id FROM semel.uploads WHERE touched_at < now() - untouched LIMIT portion FOR UPDATE SKIP LOCKED
  );
  DELETE FROM semel.parts WHERE upload = ANY (gone);
  DELETE FROM semel.uploads WHERE id = ANY (gone);
END $$;
