-- Idempotency keys in one session: fresh, complete, replay; what tells keys and
-- requests apart; transactions, savepoints, statements.
--
-- Field cases: E01 E02 E06 E08; the numbers I.. are those of the list of edge
-- cases of issue 5.
\set VERBOSITY sqlstate
SET client_min_messages = warning;

-- What a claim returns, without its time.
CREATE FUNCTION claim(key text, scope text DEFAULT '', request jsonb DEFAULT NULL) RETURNS text
LANGUAGE sql AS $$
	SELECT concat_ws(' ', CASE WHEN fresh THEN 'fresh' ELSE 'replay' END, coalesce(response::text, 'NULL'))
	FROM fence.claim(key, scope, request)
$$;

-- I1: first, replay, replay twice
BEGIN;
SELECT fresh, response, claimed_at BETWEEN now() AND clock_timestamp() AS just_now FROM fence.claim('I1');
SELECT fence.complete('I1', '{"qty": 4}');
COMMIT;
SELECT fresh, response, claimed_at < now() AS earlier FROM fence.claim('I1');
SELECT claim('I1'), claim('I1');
SELECT count(DISTINCT claimed_at) FROM (SELECT claimed_at FROM fence.claim('I1') UNION ALL SELECT claimed_at FROM fence.lookup('I1')) c;
SELECT response FROM fence.lookup('I1');
SELECT response, claimed_at FROM fence.lookup('never');

-- I65: a replay has no transaction id and writes no WAL
BEGIN;
SELECT pg_current_wal_insert_lsn() AS before \gset
SELECT count(*) FROM generate_series(1, 10000) WHERE NOT fence.once('I1');
SELECT claim('I1');
SELECT response FROM fence.claim_many('{I1}');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
-- not even the smallest record for each; others may write meanwhile
SELECT pg_current_wal_insert_lsn() - :'before'::pg_lsn < 100000 AS hardly_any_wal;
COMMIT;

-- E01, I2: another request is refused, and nothing of the first one is told
BEGIN;
SELECT claim('I2', request => '{"amount": 10}');
SELECT fence.complete('I2', '"secret"');
COMMIT;
SELECT claim('I2', request => '{"amount": 10}');
SELECT refusal($$SELECT claim('I2', request => '{"amount": 11}')$$, 'I2');
SELECT refusal($$SELECT claim('I2', request => '{"amount": 11}')$$, 'secret');
SELECT refusal($$SELECT claim('I2', request => '{}')$$), refusal($$SELECT claim('I2', request => 'null')$$);
-- while the first one is not completed, too
BEGIN;
SELECT claim('I2-open', request => '1');
SAVEPOINT s;
SELECT claim('I2-open', request => '2');
ROLLBACK TO s;
SELECT claim('I2-open', request => '1');
ROLLBACK;
-- once it is rolled back, the key is free for any request
BEGIN;
SELECT claim('I2-open', request => '2');
ROLLBACK;

-- I3: no request is a request of its own
BEGIN;
SELECT claim('I3'), fence.complete('I3', '1');
COMMIT;
SELECT claim('I3'), refusal($$SELECT claim('I3', request => '1')$$), refusal($$SELECT claim('I3', request => 'null')$$);
BEGIN;
SELECT claim('I3-given', request => 'null'), fence.complete('I3-given', '1');
COMMIT;
SELECT claim('I3-given', request => 'null'), refusal($$SELECT claim('I3-given')$$), refusal($$SELECT fence.once('I3-given')$$);

-- I4: requests are compared as jsonb (the rest is in the file canonical)
BEGIN;
SELECT claim('I4', request => '{"a": 1.0, "b": [1e2, null]}'), fence.complete('I4', '1');
COMMIT;
SELECT claim('I4', request => '{"b": [100, null], "a": 2, "a": 1}');
SELECT refusal($$SELECT claim('I4', request => '{"b": [100], "a": 1}')$$), refusal($$SELECT claim('I4', request => '{"b": [null, 100], "a": 1}')$$);

-- I5: what is stored is what comes back
CREATE TABLE response (id int PRIMARY KEY, r jsonb);
INSERT INTO response VALUES (1, NULL), (2, 'null'), (3, '{}'), (4, '""'),
	(5, to_jsonb(repeat('x', 1900))), (6, to_jsonb(repeat('x', 2100)));
-- incompressible
INSERT INTO response SELECT 7, jsonb_agg(md5(i::text)) FROM generate_series(1, 200) i;
BEGIN;
SELECT id, claim('I5-' || id), fence.complete('I5-' || id, r) IS NOT DISTINCT FROM r AS returned FROM response ORDER BY id;
COMMIT;
SELECT id, c.fresh, c.response IS NOT DISTINCT FROM r AS same, l.response IS NOT DISTINCT FROM r AS looked_up
FROM response, fence.claim('I5-' || id) c, fence.lookup('I5-' || id) l ORDER BY id;
SELECT pg_relation_size(reltoastrelid) > 0 AS toasted FROM pg_class WHERE oid = 'fence.idempotency_key'::regclass;
-- the limit, in bytes as jsonb
SELECT setting, unit, context, vartype, boot_val, short_desc <> '' AS described FROM pg_settings WHERE name = 'pg_fence.max_response';
SELECT max(n) AS fits FROM generate_series(8100, 8200) n WHERE pg_column_size(to_jsonb(repeat('x', n))) <= 8192 \gset
BEGIN;
SELECT claim('I5-cap');
SAVEPOINT s;
SELECT fence.complete('I5-cap', to_jsonb(repeat('x', :fits + 1)));
ROLLBACK TO s;
SELECT fence.complete('I5-cap', to_jsonb(repeat('x', :fits))) IS NOT NULL;
COMMIT;
SELECT refusal($$SELECT claim('I5-large') || fence.complete('I5-large', to_jsonb(repeat('x', 8192)))::text$$, '8192', '8204', 'pg_fence.max_response');
SET pg_fence.max_response = '64kB';
BEGIN;
SELECT claim('I5-64k'), fence.complete('I5-64k', to_jsonb(repeat('x', 65536 - 12))) IS NOT NULL;
COMMIT;
RESET pg_fence.max_response;
-- what is stored already is not measured again
SELECT length(claim('I5-64k'));
SELECT refusal('SET pg_fence.max_response = -1'), refusal('SET pg_fence.max_response = ''1GB''');
DROP TABLE response;

-- I6: keys are compared byte for byte
SELECT count(*) FILTER (WHERE fence.once(k, 'I6')) FROM unnest(ARRAY['k', 'K', 'k ', ' k', 'k' || chr(9), '0', '00', 'null', '''', '{}',
	'0192e4a0-1b2c-7d3e-8f40-112233445566', '0192E4A0-1B2C-7D3E-8F40-112233445566', '0192e4a01b2c7d3e8f40112233445566']) k;
SELECT count(*), count(DISTINCT id) FROM fence.idempotency_key WHERE scope = 'I6';
SELECT fence.once('k', 'I6'), fence.once('K', 'I6'), fence.once('k ', 'I6'),
	fence.once('0192e4a0-1b2c-7d3e-8f40-112233445566'::uuid::text, 'I6');
-- blanks that only pad are none
SELECT fence.once('k'::char(10), 'I6'), fence.once('padded'::char(10), 'I6');
SELECT fence.once('padded', 'I6');
-- the id of a UUIDv7 begins with its time, others do not
SELECT key, left(id::text, 13) = left(key, 13) AS time_kept, right(id::text, 20) = right(key, 20) AS rest_kept
FROM fence.idempotency_key WHERE scope = 'I6' AND length(key) > 20 ORDER BY key COLLATE "C" DESC;
SELECT count(*) FILTER (WHERE fence.once(k, 'I6-other')) FROM unnest(ARRAY['0192e4a0-1b2c-4d3e-8f40-112233445566', '0192e4a0-1b2c-7d3e-7f40-112233445566',
	'0192e4a0+1b2c-7d3e-8f40-112233445566', '0192e4a0-1b2c-7d3e-8f40-11223344556g', '0192e4ag-1b2c-7d3e-8f40-112233445566']) k;
SELECT count(*), count(*) FILTER (WHERE left(id::text, 8) = left(key, 8)) AS time_kept FROM fence.idempotency_key WHERE scope = 'I6-other';
-- the rest is SHA-256: what is dumped with its id is found under it later
SELECT count(*) > 20 AS many, bool_and(right(replace(id::text, '-', ''), 20) = encode(substr(sha, 7, 10), 'hex')) AS rest,
	count(*) FILTER (WHERE left(replace(id::text, '-', ''), 12) <> encode(substr(sha, 1, 6), 'hex')) AS time_kept
FROM fence.idempotency_key, LATERAL sha256(int4send(octet_length(scope)) || convert_to(scope, 'SQL_ASCII') || convert_to(key, 'SQL_ASCII')) sha
WHERE scope LIKE 'I6%' OR key LIKE 'I%';
-- in order of time, whatever the scope
SELECT count(*) FILTER (WHERE fence.once(format('0192e4a0-%s-7d3e-8f40-%s', lpad(to_hex(i), 4, '0'), right(md5(i::text), 12)), 'order-' || i % 3)) FROM generate_series(1, 9) i;
SELECT string_agg(substr(key, 13, 1), '' ORDER BY id) FROM fence.idempotency_key WHERE scope LIKE 'order-%';

-- E08, I7: scopes have nothing to do with each other, nor have ways to write scope and key
SELECT s, fence.once('k', s) FROM unnest('{a,b,A,"a "}'::text[]) s;
SELECT s, fence.once('k', s) FROM unnest('{a,b,A,"a "," a"}'::text[]) s;
SELECT fence.once('bc', 'a');
SELECT fence.once('c', 'ab'), fence.once('abc'), fence.once('bc', 'a');
SELECT fence.once('abc'), fence.once('c', 'ab');
SELECT response, claimed_at IS NULL FROM fence.lookup('I1', 'other');

-- I8: begin, complete, begin in one transaction
BEGIN;
SELECT claim('I8');
SELECT fence.complete('I8', '8');
SELECT claim('I8'), fence.once('I8');
SELECT response FROM fence.lookup('I8');
COMMIT;
SELECT claim('I8');

-- I9: begin twice without completing
BEGIN;
SELECT claim('I9');
SAVEPOINT s;
SELECT claim('I9');
ROLLBACK TO s;
SELECT fence.once('I9');
ROLLBACK TO s;
SELECT * FROM fence.claim_many('{I9}');
ROLLBACK TO s;
SELECT fence.complete('I9');
COMMIT;
SELECT claim('I9');

-- I10: complete twice; without a claim; that of an earlier transaction
BEGIN;
SELECT claim('I10');
SELECT fence.complete('I10', '1');
SAVEPOINT s;
SELECT fence.complete('I10', '2');
ROLLBACK TO s;
SELECT fence.complete('I10-never', '2');
ROLLBACK TO s;
SELECT fence.complete('I10', '2', 'other scope');
ROLLBACK TO s;
COMMIT;
SELECT fence.complete('I10', '2');
SELECT refusal($$SELECT fence.complete('I10-never')$$, 'I10-never', 'not claimed');
BEGIN;
SELECT fence.once('I10-once');
SELECT fence.complete('I10-once');
ROLLBACK;
SELECT claim('I10');

-- E02, I11: the key of a failed operation is free
BEGIN;
SELECT claim('I11');
SELECT 1 / 0;
ROLLBACK;
BEGIN;
SELECT claim('I11');
ROLLBACK;
SELECT claimed_at FROM fence.lookup('I11');

-- E02, I21: a claim goes with its savepoint
BEGIN;
SAVEPOINT a;
SELECT claim('I21');
ROLLBACK TO a;
SELECT claim('I21');
SAVEPOINT b;
SELECT fence.complete('I21', '1');
ROLLBACK TO b;
-- open again
SELECT refusal($$SELECT claim('I21')$$);
SELECT fence.complete('I21', '2');
COMMIT;
SELECT claim('I21');
-- an open claim that is rolled back does not count
BEGIN;
SAVEPOINT a;
SELECT claim('I21-gone');
ROLLBACK TO a;
COMMIT;
-- the completion alone is
BEGIN;
SELECT claim('I21-open');
SAVEPOINT a;
SELECT fence.complete('I21-open');
ROLLBACK TO a;
COMMIT;
SELECT claimed_at FROM fence.lookup('I21-open');

-- I22: released, and then the outer one rolled back
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT claim('I22');
RELEASE b;
SELECT refusal($$SELECT claim('I22')$$);
ROLLBACK TO a;
SELECT claim('I22');
SAVEPOINT c;
SELECT fence.complete('I22');
RELEASE c;
COMMIT;
SELECT claim('I22');
BEGIN;
SAVEPOINT a;
SELECT claim('I22-open');
RELEASE a;
COMMIT;

-- I23: in a block that fails later
DO $$
BEGIN
	BEGIN
		PERFORM claim('I23');
		RAISE division_by_zero;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	PERFORM claim('I23');
	PERFORM fence.complete('I23', '23');
END
$$;
SELECT claim('I23');
-- PF103 itself cannot be caught: it comes after the last statement
DO $$
BEGIN
	PERFORM claim('I23-open');
EXCEPTION WHEN OTHERS THEN
	NULL;
END
$$;

-- I24: nested 100 levels
CREATE FUNCTION nest(depth int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF depth % 10 = 0 THEN
		PERFORM claim('I24-' || depth);
		PERFORM fence.complete('I24-' || depth);
	END IF;
	IF depth < 100 THEN
		PERFORM nest(depth + 1);
	END IF;
	IF depth = 51 THEN
		RAISE division_by_zero;
	END IF;
EXCEPTION WHEN division_by_zero THEN
	IF depth <> 51 THEN
		RAISE;
	END IF;
END
$$;
SELECT nest(1);
SELECT count(*), max(key) FROM fence.idempotency_key WHERE key LIKE 'I24-%';
-- many savepoints, many claims
BEGIN;
DO $$
BEGIN
	FOR i IN 1 .. 2000 LOOP
		BEGIN
			PERFORM fence.once('many-' || i);
			IF i % 2 = 0 THEN
				RAISE division_by_zero;
			END IF;
		EXCEPTION WHEN division_by_zero THEN
			NULL;
		END;
	END LOOP;
END
$$;
SELECT count(*) FILTER (WHERE fence.once('many-' || i)) FROM generate_series(1, 2000) i;
COMMIT;
SELECT count(*) FROM fence.idempotency_key WHERE key LIKE 'many-%';

-- I25: an open claim is refused at the end of the transaction, and leaves nothing
SELECT claim('I25');
SELECT claim('I25') \; SELECT 1;
BEGIN;
CREATE TABLE i25 (i int);
SELECT claim('I25'), claim('I25-b'), claim('I25-c');
COMMIT;
SELECT to_regclass('i25') IS NULL AS gone, count(*) FROM fence.idempotency_key WHERE key LIKE 'I25%';
-- an UPDATE of no row leaves the claim open
CREATE TABLE inv (id int PRIMARY KEY, qty int);
INSERT INTO inv SELECT i, 10 FROM generate_series(1, 5) i;
WITH c AS MATERIALIZED (SELECT * FROM fence.claim('I39')),
	w AS (UPDATE inv SET qty = qty - 1 FROM c WHERE c.fresh AND id = 99 RETURNING qty),
	d AS MATERIALIZED (SELECT fence.complete('I39', jsonb_build_object('qty', w.qty)) AS response FROM w)
SELECT c.fresh, coalesce((SELECT response FROM d), c.response) FROM c;
-- the same with a row, twice
PREPARE take AS
WITH c AS MATERIALIZED (SELECT * FROM fence.claim($1)),
	w AS (UPDATE inv SET qty = qty - 1 FROM c WHERE c.fresh AND id = 1 RETURNING qty),
	d AS MATERIALIZED (SELECT fence.complete($1, jsonb_build_object('qty', w.qty)) AS response FROM w)
SELECT c.fresh, coalesce((SELECT response FROM d), c.response) AS response FROM c;
EXECUTE take('I39');
EXECUTE take('I39');
EXECUTE take('I39-b');
EXECUTE take('I39');
SELECT qty FROM inv WHERE id = 1;
DEALLOCATE take;

-- I27: COMMIT in a procedure
CREATE PROCEDURE across(key text, early boolean) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM claim(key);
	IF early THEN
		PERFORM fence.complete(key, '1');
	END IF;
	COMMIT;
	PERFORM fence.complete(key, '2');
END
$$;
CALL across('I27', true);
CALL across('I27-open', false);
SELECT claim('I27'), claimed_at IS NULL AS open_gone FROM fence.lookup('I27-open');
-- I29: COMMIT AND CHAIN
BEGIN;
SELECT claim('I29'), fence.complete('I29', '1');
COMMIT AND CHAIN;
SELECT claim('I29');
SELECT claim('I29-open');
COMMIT AND CHAIN;
SELECT claim('I29-open');
ROLLBACK AND CHAIN;
SELECT claim('I29-open'), fence.complete('I29-open');
COMMIT;
SELECT claim('I29-open');

-- I64: what drivers do by themselves.  A savepoint for each statement ...
BEGIN;
SAVEPOINT a;
SELECT claim('I64');
RELEASE a;
SAVEPOINT a;
SELECT claim('I64');
ROLLBACK TO a;
SAVEPOINT a;
SELECT fence.complete('I64', '64');
RELEASE a;
COMMIT;
SELECT claim('I64');
-- ... and prepared statements, which are planned anew when something changes
PREPARE replay (text) AS SELECT fresh, (SELECT response FROM fence.claim($1)) FROM fence.claim($1);
SET plan_cache_mode = force_generic_plan;
EXECUTE replay('I64');
BEGIN;
ALTER FUNCTION fence.claim COST 2000;
EXECUTE replay('I64');
ROLLBACK;
EXECUTE replay('I64');
RESET plan_cache_mode;
EXECUTE replay('I64');
DEALLOCATE replay;

-- I28: the rows of one statement get one answer
SELECT i, fence.once('I28') FROM generate_series(1, 3) i;
SELECT i, fence.once('I28') FROM generate_series(1, 3) i;
UPDATE inv SET qty = qty + 100 WHERE fence.once('I28-update');
UPDATE inv SET qty = qty + 100 WHERE fence.once('I28-update');
SELECT DISTINCT qty FROM inv WHERE id > 1;
SELECT fence.once('I28-two'), fence.once('I28-two');
SELECT fence.once('I28-two'), fence.once('I28-two');
WITH a AS MATERIALIZED (SELECT fence.once('I28-cte') AS o), b AS MATERIALIZED (SELECT fence.once('I28-cte') AS o) SELECT a.o, b.o FROM a, b;
BEGIN;
SELECT i, claim.fresh FROM generate_series(1, 2) i, LATERAL fence.claim('I28-lateral', request => to_jsonb(1)) claim;
SELECT fence.complete('I28-lateral');
COMMIT;
-- (...).* calls the function once for each column: they agree, and it is one claim
BEGIN;
SELECT fresh, response, claimed_at IS NOT NULL AS claimed FROM (SELECT (fence.claim('I28-star')).*) c;
SELECT (c).fresh, (c).response FROM (SELECT fence.claim('I28-star-2') AS c OFFSET 0) c;
SELECT fence.complete('I28-star', '1'), fence.complete('I28-star-2', '2');
COMMIT;
SELECT fresh, response, claimed_at IS NOT NULL AS claimed FROM (SELECT (fence.claim('I28-star')).*) c;
SELECT (fence.claim('I28-star')).response, (fence.claim('I28-star')).fresh;
SELECT key FROM fence.keys WHERE key LIKE 'I28-star%' ORDER BY key COLLATE "C";
-- two claims of one statement with different requests: the second is another one
SELECT fence.claim('I28-other', request => to_jsonb(i)) FROM generate_series(1, 2) i;
-- loops and calls in PL/pgSQL are statements of their own, in whatever form
CREATE FUNCTION attempts(key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text := '';
	o boolean;
BEGIN
	FOR i IN 1 .. 2 LOOP
		IF fence.once(key || '-if') THEN
			result := result || 'if ';
		END IF;
		o := fence.once(key || '-assign');
		IF o THEN
			result := result || 'assign ';
		END IF;
		SELECT fence.once(key || '-select') INTO o;
		IF o THEN
			result := result || 'select ';
		END IF;
		EXECUTE 'SELECT fence.once($1)' INTO o USING key || '-execute';
		IF o THEN
			result := result || 'execute ';
		END IF;
		FOR o IN SELECT fence.once(key || '-for') LOOP
			IF o THEN
				result := result || 'for ';
			END IF;
		END LOOP;
	END LOOP;
	IF fence.once(key || '-if') OR fence.once(key || '-select') THEN
		result := result || 'again ';
	END IF;
	RETURN result;
END
$$;
SELECT attempts('I28-plpgsql');
SELECT attempts('I28-plpgsql');
BEGIN;
SELECT attempts('I28-block');
SELECT attempts('I28-block'), fence.once('I28-block-if');
COMMIT;
-- a caller that has written nothing so far is not taken for its callee
SELECT attempts('I28-inner'), fence.once('I28-inner-if') AS callers;
-- cursors that were opened before the claim
BEGIN;
DECLARE a CURSOR FOR SELECT fence.once('I28-cursor') FROM generate_series(1, 3);
DECLARE b CURSOR FOR SELECT fence.once('I28-cursor') FROM generate_series(1, 3);
FETCH a;
FETCH b;
FETCH a;
FETCH ALL b;
SELECT fence.once('I28-cursor');
COMMIT;
-- inside DML
INSERT INTO inv SELECT 100 + i, 0 FROM generate_series(1, 3) i WHERE fence.once('I28-insert');
INSERT INTO inv SELECT 200 + i, 0 FROM generate_series(1, 3) i WHERE fence.once('I28-insert');
DELETE FROM inv WHERE id > 100 AND fence.once('I28-delete');
DELETE FROM inv WHERE fence.once('I28-delete');
SELECT count(*) FROM inv;

-- rows of the table are no secret to its owner
SELECT scope, key, request IS NOT NULL AS request, response, expires_at - claimed_at = '1 day' AS one_day FROM fence.idempotency_key WHERE key = 'I2';
SELECT scope, key, response_size > 0 AS has_size, expires_at - claimed_at = '1 day' AS one_day FROM fence.keys WHERE key = 'I2';
BEGIN;
SELECT fresh FROM fence.claim('retain', retain => '90 days');
SELECT fence.complete('retain');
SELECT expires_at - claimed_at = '90 days' AS ninety_days FROM fence.keys WHERE key = 'retain';
ROLLBACK;

DROP TABLE inv;
DROP PROCEDURE across(text, boolean);
DROP FUNCTION attempts(text), nest(int), claim(text, text, jsonb);
