-- fence.forget(): resources that nobody uses are removed, and no token that was
-- ever accepted or issued there is so again.
--
-- Comes late: the floor concerns every resource without a row.
-- Field cases: B03 B05 B11
\set VERBOSITY sqlstate
SET default_transaction_isolation = 'read committed';
SET client_min_messages = warning;

-- The owner of the tables can make time pass: to the 5 years after which things
-- are forgotten here, so that nothing of the other files is.
CREATE FUNCTION age(resource text) RETURNS void LANGUAGE sql AS $$
	UPDATE fence.resource SET marked_at = marked_at - interval '10 years', acquired_at = acquired_at - interval '10 years',
		expires_at = expires_at - interval '10 years', released_at = released_at - interval '10 years'
	WHERE name = $1
$$;
CREATE VIEW known AS SELECT name, token, mark FROM fence.resource WHERE name LIKE 'f-%' OR name = '' ORDER BY name COLLATE "C";
CREATE VIEW others AS SELECT count(*) AS n, coalesce(sum(mark::numeric), 0) AS marks FROM fence.resource WHERE name NOT LIKE 'f-%' AND name <> '';
SELECT n AS others, marks AS their_marks FROM others \gset

-- nothing is old: nothing is forgotten, and there is no floor
SELECT fence.check('f-external', 50), fence.raise_mark('f-raised', 60);
SELECT acquired, token FROM fence.acquire('f-live', 'a', '1 hour');
SELECT acquired, token FROM fence.acquire('f-released', 'a', '1 hour');
SELECT acquired, token FROM fence.acquire('f-expired', 'a', '1 hour');
SELECT acquired, token FROM fence.acquire('f-kept', 'a', '1 hour');
SELECT fence.release('f-released', 1);
SELECT fence.forget('5 years');
TABLE known;

-- idle: marked by a token from outside, or by hand, released, run out.  In use: a
-- lease that lives, was extended or released lately, a mark that was set lately.
SELECT age('f-external'), age('f-raised'), age('f-released'), age('f-expired');
SELECT age('f-live'), age('f-kept');
UPDATE fence.resource SET expires_at = clock_timestamp() + '1 hour' WHERE name = 'f-live';
UPDATE fence.resource SET released_at = clock_timestamp() WHERE name = 'f-kept';
SELECT fence.forget('5 years');
TABLE known;
SELECT resource, state FROM fence.leases WHERE resource LIKE 'f-%' ORDER BY resource COLLATE "C";
SELECT fence.mark('f-external'), fence.mark('f-raised'), fence.mark('f-released'), fence.mark('f-live');
SELECT n = :others AND marks = :their_marks AS others_untouched FROM others;
-- again: nothing left
SELECT fence.forget('5 years');

-- too high to be the floor of the others
SELECT fence.check('f-max', 9223372036854775807), fence.check('f-high', 4611686018427387905);
SELECT age('f-max'), age('f-high');
SELECT fence.forget('5 years');
SELECT name, mark FROM fence.resource WHERE name IN ('', 'f-max', 'f-high') ORDER BY name COLLATE "C";
DELETE FROM fence.resource WHERE name IN ('f-max', 'f-high');

-- not accepted again, whoever has forgotten it: up to the floor
SELECT fence.check('f-external', 50);
SELECT fence.check('f-released', 1);
SELECT fence.check('f-raised', 60);
SELECT fence.check('f-released', 60);
SELECT fence.check('f-new', 59);
SELECT refusal($$SELECT fence.check('f-external', 50)$$, '50', 'f-external', '60', 'forgotten');
SELECT extended, reason FROM fence.extend('f-released', 1);
SELECT fence.release('f-expired', 1);
SELECT acquired, reason FROM fence.hand_over('f-expired', 1, 'b');
SELECT fence.break_lease('f-expired');
SELECT fence.raise_mark('f-external', 59);
SELECT fence.raise_mark('f-external', 60);
TABLE known;
-- not issued again
SELECT acquired, token FROM fence.acquire('f-released', 'b', '1 hour');
SELECT acquired, token FROM fence.acquire('f-never', 'b', '1 hour');
SELECT fence.check('f-released', 1);
SELECT fence.check('f-released', 61, 'b', 'postgres');
-- above it: accepted, from outside too
SELECT fence.check('f-external', 61, 'node-1');
SELECT fence.raise_mark('f-raised', 70);
TABLE known;
-- what has a row goes by its row
SELECT fence.check('f-live', 1, lease => 'postgres');
SELECT extended, reason FROM fence.extend('f-live', 1);
SELECT fence.check('f-kept', 1);
SELECT acquired, token FROM fence.acquire('f-kept', 'b', '1 hour');

-- in tables: new rows by the floor, too; old ones hold their own token
CREATE TABLE f_row (id int PRIMARY KEY, qty int, tok bigint);
CREATE TABLE f_both (id int PRIMARY KEY, qty int, tok bigint);
CREATE TABLE f_res (id int PRIMARY KEY, qty int);
SELECT fence.protect('f_row', 'f-row-{id}', 'tok', 'row'), fence.protect('f_both', 'f-both-{id}', 'tok'), fence.protect('f_res', 'f-res-{id}');
INSERT INTO f_row VALUES (1, 1, 60);
INSERT INTO f_row VALUES (1, 1, 61);
COPY f_row FROM stdin;
2	1	60
\.
MERGE INTO f_row r USING (VALUES (3)) v (id) ON r.id = v.id WHEN NOT MATCHED THEN INSERT VALUES (v.id, 1, 60);
UPDATE f_row SET id = 4, tok = 60 WHERE id = 1;
UPDATE f_row SET tok = 61 WHERE id = 1;
BEGIN;
SELECT fence.check('f-row-1', 61);
SAVEPOINT s;
UPDATE f_row SET id = 4, tok = 61 WHERE id = 1;
ROLLBACK TO s;
DELETE FROM f_row WHERE id = 1;
COMMIT;
INSERT INTO f_both VALUES (1, 1, 60);
INSERT INTO f_both VALUES (1, 1, 62);
BEGIN;
SELECT fence.check('f-res-1', 61);
INSERT INTO f_res VALUES (1, 1);
COMMIT;
-- B05: the tombstone of a deleted row is forgotten, and still keeps old holders out
SELECT age('f-row-1'), age('f-both-1'), age('f-res-1');
SELECT fence.forget('5 years');
INSERT INTO f_row VALUES (1, 1, 61);
INSERT INTO f_row VALUES (1, 1, 62);
INSERT INTO f_row VALUES (1, 1, 63);
UPDATE f_both SET qty = 2, tok = 62;
UPDATE f_both SET qty = 2, tok = 63;
UPDATE f_res SET qty = 2 WHERE fence.check('f-res-1', 61);
UPDATE f_res SET qty = 2 WHERE fence.check('f-res-1', 63);
SELECT * FROM f_row UNION ALL SELECT * FROM f_both UNION ALL SELECT *, NULL FROM f_res;
-- stored tokens above the mark: none, the floor is the mark of what was forgotten
SELECT age('f-both-1');
SELECT fence.forget('5 years');
SELECT count(*) FROM fence.audit() WHERE target IN ('f_row'::regclass, 'f_both'::regclass, 'f_res'::regclass);
DROP TABLE f_row, f_both, f_res;

-- the floor never falls
SELECT name, mark FROM known WHERE name = '';
SELECT acquired, token FROM fence.acquire('f-low', 'a', '1 hour');
UPDATE fence.resource SET token = 3, mark = 3 WHERE name = 'f-low';
SELECT age('f-low');
SELECT fence.forget('5 years');
SELECT name, mark FROM known WHERE name = '';
-- B03: by what was issued as well as by the mark
SELECT acquired, token FROM fence.acquire('f-issued', 'a', '1 hour');
UPDATE fence.resource SET token = 90, mark = 80 WHERE name = 'f-issued';
SELECT age('f-issued');
SELECT fence.forget('5 years');
SELECT name, mark FROM known WHERE name = '';
SELECT acquired, token FROM fence.acquire('f-issued', 'b', '1 hour');

-- so many at a time
SELECT count(fence.check('f-batch-' || i, 100 + i)) FROM generate_series(1, 10) i;
SELECT bool_and(age('f-batch-' || i) IS NULL) AS aged FROM generate_series(1, 10) i;
SELECT fence.forget('5 years', 4);
SELECT fence.forget('5 years', 4), fence.forget('5 years', 4), fence.forget('5 years', 4);
SELECT count(*) FROM fence.resource WHERE name LIKE 'f-batch-%';
SELECT name, mark FROM known WHERE name = '';

-- rolled back: nothing is forgotten, the floor is where it was; no lock stays
SELECT fence.check('f-rolled', 200), age('f-rolled');
BEGIN;
SAVEPOINT s;
SELECT fence.forget('5 years');
SELECT fence.mark('f-rolled'), mark FROM known WHERE name = '';
SELECT acquired, token FROM fence.acquire('f-rolled', 'a', '1 hour');
ROLLBACK TO s;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT fence.mark('f-rolled'), mark FROM known WHERE name = '';
COMMIT;
-- in the same transaction: acquired again, above
BEGIN;
SELECT fence.forget('5 years');
SELECT acquired, token FROM fence.acquire('f-rolled', 'a', '1 hour');
SELECT fence.check('f-rolled', 201);
COMMIT;
TABLE known;
-- a transaction that stands on a token which it has forgotten itself is late
SELECT fence.check('f-own', 300), age('f-own');
BEGIN;
SELECT fence.check('f-own', 300);
SELECT fence.forget('5 years');
SELECT fence.check('f-own', 300);
COMMIT;
SELECT fence.mark('f-own');
SELECT fence.forget('5 years');
SELECT fence.mark('f-own');
-- at every level
SELECT fence.check('f-rr', 400), age('f-rr');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT fence.forget('5 years');
COMMIT;
SELECT fence.check('f-rr', 401), age('f-rr');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT fence.forget('5 years');
-- ... and depends on no row that somebody else may change
SELECT count(*) FROM pg_locks WHERE mode = 'SIReadLock' AND pid = pg_backend_pid();
SAVEPOINT s;
SELECT fence.check('f-rr', 401);
ROLLBACK TO s;
COMMIT;

-- it survives: the session, and names that look like it
\c -
SET client_min_messages = warning;
SELECT fence.check('f-rr', 401);
SELECT fence.check('f-rr', 402);
SELECT refusal($$SELECT fence.check('', 1000)$$), refusal($$SELECT fence.mark('')$$), refusal($$SELECT fence.acquire('', 'a')$$), refusal($$SELECT fence.raise_mark('', 1)$$);
SELECT count(*) FROM fence.leases WHERE resource = '';
SELECT name, mark FROM known WHERE name = '';

-- arguments
SELECT a, refusal('SELECT fence.forget(' || a || ')')
FROM unnest(ARRAY['NULL', '''-1 s''', '''-1 day''', '''102 years''', '''178000000 years''', '''1 day'', NULL', '''1 day'', 0', '''1 day'', -1']) a;
SELECT refusal('SELECT fence.forget()');
BEGIN READ ONLY;
SELECT fence.forget('5 years');
ROLLBACK;
SELECT fence.forget('100 years'), fence.forget('5 years', 2147483647);
-- idle since just now: all that is not in use
BEGIN;
SELECT count(*) AS live FROM fence.leases WHERE state = 'held' \gset
SELECT fence.forget('0', 200) > 0 AS some;
SELECT :live > 0 AND count(*) = :live AS live_ones_stay FROM fence.leases WHERE state = 'held';
SELECT fence.check('f-live', 1, lease => 'postgres');
ROLLBACK;
-- for those it was granted to
CREATE ROLE regress_fence_forgetter;
GRANT USAGE ON SCHEMA fence TO regress_fence_forgetter;
SET ROLE regress_fence_forgetter;
SELECT fence.forget('5 years');
RESET ROLE;
GRANT EXECUTE ON FUNCTION fence.forget(interval, integer) TO regress_fence_forgetter;
SELECT fence.check('f-rr', 403), age('f-rr');
SET ROLE regress_fence_forgetter;
SELECT fence.forget('5 years');
RESET ROLE;
SELECT n = :others AND marks = :their_marks AS others_untouched FROM others;

-- for the files that follow
DELETE FROM fence.resource WHERE name = '' OR name LIKE 'f-%';
DROP OWNED BY regress_fence_forgetter;
DROP ROLE regress_fence_forgetter;
DROP VIEW known, others;
DROP FUNCTION age(text);
