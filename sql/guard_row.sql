-- The guard with a token column and marks => 'row': a row is judged by the
-- token that it holds; what a DELETE leaves behind keeps old holders out.
--
-- Field cases: A01 A02 B04 B05 C02 C03 C11 C12
\set VERBOSITY sqlstate

CREATE TABLE job (id int PRIMARY KEY, qty int, tok bigint);
SELECT fence.protect('job', 'job:{id}', 'tok', 'row');
SELECT tgtype & 1 AS row, tgtype & 2 AS before, tgtype & 60 AS events, tgname LIKE '~fence\_%' AS ours
FROM pg_trigger WHERE tgrelid = 'job'::regclass ORDER BY tgtype;

-- INSERT: with its token, or the one presented in the transaction
INSERT INTO job VALUES (1, 1, 5);
INSERT INTO job VALUES (2, 1, NULL);
INSERT INTO job (id, qty) VALUES (2, 1);
INSERT INTO job VALUES (2, 1, 0);
INSERT INTO job VALUES (2, 1, -1);
BEGIN;
SELECT fence.check('job:2', 9);
INSERT INTO job (id, qty) VALUES (2, 1);
COMMIT;
TABLE job ORDER BY id;
COPY job FROM stdin;
3	1	5
4	1	5
\.
COPY job FROM stdin;
5	1	5
6	1	\N
\.
COPY job (id, qty) FROM stdin;
5	1
\.
TABLE job ORDER BY id;

-- UPDATE: equal and higher pass, lower is stale (B04)
UPDATE job SET qty = 2, tok = 5 WHERE id = 1;
UPDATE job SET qty = 3, tok = 5 WHERE id = 1;
UPDATE job SET qty = 4, tok = 4 WHERE id = 1;
UPDATE job SET qty = 5, tok = 7 WHERE id = 1;
UPDATE job SET qty = 6, tok = 5 WHERE id = 1;
UPDATE job SET qty = 7, tok = 0 WHERE id = 1;
UPDATE job SET qty = 7, tok = -1 WHERE id = 1;
SELECT * FROM job WHERE id = 1;
-- 10 is above 9 (numbers, not text)
UPDATE job SET tok = 9 WHERE id = 1;
UPDATE job SET tok = 10 WHERE id = 1;
UPDATE job SET tok = 9 WHERE id = 1;
UPDATE job SET tok = 9223372036854775807 WHERE id = 4;
UPDATE job SET tok = 9223372036854775806 WHERE id = 4;
-- fence.resource is none of its business
SELECT fence.mark('job:1'), fence.mark('job:4');

-- C03: a writer that does not know the column; one that copies it
UPDATE job SET qty = 0 WHERE id = 1;
UPDATE job SET qty = 0, tok = NULL WHERE id = 1;
UPDATE job SET qty = 0, tok = DEFAULT WHERE id = 1;
UPDATE job SET qty = 8, tok = tok WHERE id = 1;
SELECT * FROM job WHERE id = 1;
-- with a token in the transaction: stamped
BEGIN;
SELECT fence.check('job:1', 11);
UPDATE job SET qty = 9 WHERE id = 1;
SELECT * FROM job WHERE id = 1;
UPDATE job SET qty = 10, tok = NULL WHERE id = 1;
SELECT * FROM job WHERE id = 1;
COMMIT;
SELECT fence.mark('job:1');
-- below what the row holds
BEGIN;
SELECT fence.check('job:3', 4);
UPDATE job SET qty = 0 WHERE id = 3;
COMMIT;
SELECT * FROM job WHERE id = 3;
SELECT fence.mark('job:3');
-- what is set goes before what is presented
BEGIN;
SELECT fence.check('job:3', 20);
UPDATE job SET qty = 0, tok = 6 WHERE id = 3;
SELECT * FROM job WHERE id = 3;
UPDATE job SET qty = 0, tok = 5 WHERE id = 3;
ROLLBACK;

-- A02: a batch with one stale row among fresh ones fails as a whole
UPDATE job SET qty = v.q, tok = v.t FROM (VALUES (1, 10, 11), (2, 10, 7), (3, 10, 5)) v (id, q, t) WHERE job.id = v.id;
SELECT * FROM job WHERE id <= 3 ORDER BY id;
UPDATE job SET qty = v.q, tok = v.t FROM (VALUES (1, 10, 11), (2, 10, 9), (3, 10, 5)) v (id, q, t) WHERE job.id = v.id;
SELECT * FROM job WHERE id <= 3 ORDER BY id;
-- a function that wants the good ones can have them
CREATE FUNCTION write_back(ids int[], qtys int[], toks bigint[]) RETURNS TABLE (id int, result text) LANGUAGE plpgsql AS $$
DECLARE
	r record;
BEGIN
	FOR r IN SELECT * FROM unnest(ids, qtys, toks) u (id, q, t) LOOP
		id := r.id;
		BEGIN
			UPDATE job SET qty = r.q, tok = r.t WHERE job.id = r.id;
			result := 'written';
		EXCEPTION WHEN SQLSTATE 'PF001' THEN
			result := 'stale';
		END;
		RETURN NEXT;
	END LOOP;
END
$$;
SELECT * FROM write_back('{1,2,3}', '{20,20,20}', '{12,7,6}');
SELECT * FROM job WHERE id <= 3 ORDER BY id;
DROP FUNCTION write_back(int[], int[], bigint[]);

-- C02: upserts
INSERT INTO job VALUES (3, 30, 5) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
INSERT INTO job VALUES (3, 30, 7) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
SELECT * FROM job WHERE id = 3;
-- C03: only the proposed row has a token, and that one is not written
INSERT INTO job VALUES (3, 31, 3) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty;
INSERT INTO job VALUES (3, 31, 8) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty;
INSERT INTO job VALUES (3, 31, 8) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = job.tok;
INSERT INTO job VALUES (3, 32, 8) ON CONFLICT DO NOTHING;
SELECT * FROM job WHERE id = 3;
INSERT INTO job (id, qty) VALUES (3, 33) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = 8;
BEGIN;
SELECT fence.check('job:3', 8);
INSERT INTO job (id, qty) VALUES (3, 34) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty;
COMMIT;
SELECT * FROM job WHERE id = 3;
-- C11: the same row twice
INSERT INTO job VALUES (3, 1, 20), (3, 2, 21) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
MERGE INTO job j USING (VALUES (3, 20), (3, 21)) v (id, t) ON j.id = v.id WHEN MATCHED THEN UPDATE SET tok = v.t;
SELECT * FROM job WHERE id = 3;
UPDATE job SET tok = v.t FROM (VALUES (20), (20)) v (t) WHERE id = 3;
SELECT * FROM job WHERE id = 3;
-- two changes of one row in one statement: the first one wins, as always
WITH a AS (UPDATE job SET tok = 21 WHERE id = 3 RETURNING tok), b AS (UPDATE job SET tok = 1 WHERE id = 3 AND EXISTS (SELECT FROM a) RETURNING tok)
SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b;
SELECT * FROM job WHERE id = 3;

-- MERGE: the columns set are the union over all actions, so that an unchanged
-- token in one of them is not a presented one
MERGE INTO job j USING (VALUES (3)) v (id) ON j.id = v.id WHEN MATCHED THEN UPDATE SET qty = 40, tok = 22;
MERGE INTO job j USING (VALUES (3)) v (id) ON j.id = v.id WHEN MATCHED THEN UPDATE SET qty = 41, tok = 21;
MERGE INTO job j USING (VALUES (3)) v (id) ON j.id = v.id WHEN MATCHED THEN UPDATE SET qty = 42;
MERGE INTO job j USING (VALUES (3)) v (id) ON j.id = v.id
	WHEN MATCHED AND j.qty = 0 THEN UPDATE SET tok = 30
	WHEN MATCHED THEN UPDATE SET qty = 43;
MERGE INTO job j USING (VALUES (3), (50)) v (id) ON j.id = v.id
	WHEN MATCHED THEN UPDATE SET qty = 44, tok = 23
	WHEN NOT MATCHED THEN INSERT VALUES (v.id, 1, 1);
MERGE INTO job j USING (VALUES (51)) v (id) ON j.id = v.id WHEN NOT MATCHED THEN INSERT VALUES (v.id, 1);
MERGE INTO job j USING (VALUES (50)) v (id) ON j.id = v.id WHEN MATCHED THEN DELETE;
SELECT * FROM job WHERE id IN (3, 50, 51) ORDER BY id;
-- also inside a function, and with the statement that comes with it
CREATE FUNCTION merge_job() RETURNS void LANGUAGE sql AS $$
	MERGE INTO job j USING (VALUES (3)) v (id) ON j.id = v.id
		WHEN MATCHED AND j.qty = 0 THEN UPDATE SET tok = 30
		WHEN MATCHED THEN UPDATE SET qty = 45
$$;
SELECT merge_job();
SELECT * FROM job WHERE id = 3;
BEGIN;
SELECT fence.check('job:3', 24);
SELECT merge_job();
SELECT * FROM job WHERE id = 3;
ROLLBACK;
DROP FUNCTION merge_job();

-- DELETE presents nothing by itself; the token that it needs stays as the mark
-- of the resource (B05)
DELETE FROM job WHERE id = 1;
DELETE FROM job WHERE id = 1 AND tok = 12;
BEGIN;
SELECT fence.check('job:1', 11);
DELETE FROM job WHERE id = 1;
COMMIT;
BEGIN;
SELECT fence.check('job:1', 12);
DELETE FROM job WHERE id = 1 RETURNING *;
COMMIT;
SELECT fence.mark('job:1');
INSERT INTO job VALUES (1, 0, 2);
INSERT INTO job VALUES (1, 0, 11);
COPY job FROM stdin;
1	0	11
\.
INSERT INTO job VALUES (1, 0, 11) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
MERGE INTO job j USING (VALUES (1)) v (id) ON j.id = v.id WHEN NOT MATCHED THEN INSERT VALUES (v.id, 0, 11);
UPDATE job SET id = 1, tok = 11 WHERE id = 2;
INSERT INTO job VALUES (1, 0, 12);
SELECT * FROM job WHERE id = 1;
-- in one transaction: deleted and inserted again
BEGIN;
SELECT fence.check('job:1', 13);
DELETE FROM job WHERE id = 1;
INSERT INTO job VALUES (1, 0, 12);
ROLLBACK;
BEGIN;
SELECT fence.check('job:1', 13);
DELETE FROM job WHERE id = 1;
INSERT INTO job (id, qty) VALUES (1, 60);
COMMIT;
SELECT * FROM job WHERE id = 1;
-- after an acquisition here, old holders cannot insert either (A01)
SELECT acquired, token FROM fence.acquire('job:100', 'a', '1 hour');
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'job:100';
SELECT acquired, token FROM fence.acquire('job:100', 'a', '1 hour');
INSERT INTO job VALUES (100, 0, 1);
INSERT INTO job VALUES (100, 0, 2);
UPDATE job SET qty = 0, tok = 1 WHERE id = 100;
SELECT * FROM job WHERE id = 100;

-- A row that changes its resource: what was presented for the old one, and a
-- token for the new one
UPDATE job SET id = 200, tok = 30 WHERE id = 2;
BEGIN;
SELECT fence.check('job:2', 8);
UPDATE job SET id = 200, tok = 30 WHERE id = 2;
ROLLBACK;
BEGIN;
SELECT fence.check('job:2', 9);
SAVEPOINT s;
UPDATE job SET id = 200 WHERE id = 2;
ROLLBACK TO s;
UPDATE job SET id = 200, tok = 8 WHERE id = 2;
ROLLBACK TO s;
SELECT fence.check('job:200', 25);
UPDATE job SET id = 200, tok = 24 WHERE id = 2;
ROLLBACK TO s;
UPDATE job SET id = 200, tok = 30 WHERE id = 2;
COMMIT;
SELECT * FROM job WHERE id IN (2, 200);

-- TRUNCATE: no token covers all rows
TRUNCATE job;
BEGIN;
SELECT fence.check('job:3', 99);
TRUNCATE job;
ROLLBACK;

-- A token column with a default of 0: not set by whoever does not set it
ALTER TABLE job ALTER tok SET DEFAULT 0;
INSERT INTO job (id, qty) VALUES (300, 1);
INSERT INTO job VALUES (300, 1, 0);
BEGIN;
SELECT fence.check('job:300', 3);
INSERT INTO job (id, qty) VALUES (300, 1);
COMMIT;
SELECT * FROM job WHERE id = 300;
UPDATE job SET tok = DEFAULT WHERE id = 300;
-- rows from the time before the guard
ALTER TABLE job DISABLE TRIGGER USER;
INSERT INTO job VALUES (400, 1, NULL), (401, 1, 0);
ALTER TABLE job ENABLE TRIGGER USER;
UPDATE job SET qty = 2 WHERE id = 400;
UPDATE job SET qty = 2, tok = tok WHERE id = 400;
UPDATE job SET qty = 2, tok = tok WHERE id = 401;
UPDATE job SET qty = 2, tok = 1 WHERE id IN (400, 401);
SELECT * FROM job WHERE id >= 400 ORDER BY id;

-- C12: the row is changed in place, nothing is "modified by an operation
-- triggered by the current command"; many rows, some of which grow by the stamp
BEGIN;
SELECT count(fence.check('job:' || i, 7)) FROM generate_series(1000, 1999) i;
INSERT INTO job (id, qty, tok) SELECT i, i, NULL FROM generate_series(1000, 1999) i;
UPDATE job SET qty = qty + 1 WHERE id BETWEEN 1000 AND 1999;
SELECT count(*), sum(qty), min(tok), max(tok) FROM job WHERE id BETWEEN 1000 AND 1999;
DELETE FROM job WHERE id BETWEEN 1000 AND 1998;
COMMIT;
DROP TABLE job;

-- rows of every length
CREATE TABLE wide (id int PRIMARY KEY, filler text, tok bigint);
SELECT fence.protect('wide', 'wide', 'tok', 'row');
BEGIN;
SELECT fence.check('wide', 1);
INSERT INTO wide (id, filler) SELECT i, repeat('x', i) FROM generate_series(0, 3000, 7) i;
SELECT count(*), count(*) FILTER (WHERE filler = repeat('x', id)) AS intact, min(tok), max(tok) FROM wide;
UPDATE wide SET filler = filler || 'y';
SELECT count(*), count(*) FILTER (WHERE filler = repeat('x', id) || 'y') AS intact, min(tok), max(tok) FROM wide;
COMMIT;
DROP TABLE wide;

-- marks => 'row' with a lease: the token must belong to a live one
CREATE TABLE leased (id int PRIMARY KEY, tok bigint);
SELECT fence.protect('leased', 'row-leased', 'tok', 'row', 'postgres');
INSERT INTO leased VALUES (1, 1);
SELECT acquired, token FROM fence.acquire('row-leased', 'a', '1 hour');
INSERT INTO leased VALUES (1, 1);
UPDATE leased SET tok = 2;
BEGIN;
UPDATE leased SET tok = 1;
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'row-leased';
COMMIT;
SELECT fence.release('row-leased', 1);
UPDATE leased SET tok = 1;
TABLE leased;
DROP TABLE leased;
