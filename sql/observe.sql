-- mode => 'observe': what would have been refused is a warning with its
-- SQLSTATE, one for each statement, and the write goes through unchanged.
--
-- Field cases: C03 C14
\set VERBOSITY sqlstate
SET default_transaction_isolation = 'read committed';

CREATE TABLE obs (id int PRIMARY KEY, shelf text, qty int);
INSERT INTO obs VALUES (1, 'x', 1), (2, 'y', 1);

--
-- A plain name: a statement-level trigger
--
SELECT fence.protect('obs', 'obs', mode => 'observe');
SELECT target, resource, token_column, marks, lease, mode, enabled FROM fence.protected_tables WHERE target = 'obs'::regclass;
SELECT tgtype & 1 AS row, tgtype & 2 AS before, tgtype & 60 AS events FROM pg_trigger WHERE tgrelid = 'obs'::regclass ORDER BY tgtype;
INSERT INTO obs VALUES (3, 'z', 1), (4, 'z', 1);
UPDATE obs SET qty = 2;
DELETE FROM obs WHERE id = 4;
COPY obs FROM stdin;
4	z	2
5	z	2
\.
INSERT INTO obs VALUES (5, 'z', 3) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty;
MERGE INTO obs o USING (VALUES (5), (6)) v (id) ON o.id = v.id
	WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'z', 4);
WITH a AS (UPDATE obs SET qty = 5 WHERE id = 6 RETURNING id) SELECT * FROM a;
SELECT * FROM obs ORDER BY id;
BEGIN;
TRUNCATE obs;
SELECT count(*) FROM obs;
ROLLBACK;
-- the token of another resource; a token
BEGIN;
SELECT fence.check('obs-other', 1);
UPDATE obs SET qty = 6;
SELECT fence.check('obs', 10);
UPDATE obs SET qty = 7;
TRUNCATE obs;
COMMIT;
SELECT count(*) FROM obs;
SELECT fence.mark('obs');
-- each statement by itself: of a function, of a message
DO $$
BEGIN
	FOR i IN 1..3 LOOP
		INSERT INTO obs VALUES (i, 'x', i);
	END LOOP;
END
$$;
BEGIN;
DO $$
BEGIN
	TRUNCATE obs;
	TRUNCATE obs;
	DELETE FROM obs;
END
$$;
ROLLBACK;
UPDATE obs SET qty = 8\; UPDATE obs SET qty = 9;
UPDATE obs SET qty = 8 WHERE false\; UPDATE obs SET qty = 8 WHERE false;
-- a statement that fails by itself, and is repeated
BEGIN;
SAVEPOINT s;
UPDATE obs SET qty = 1 / (id - 1);
ROLLBACK TO s;
UPDATE obs SET qty = 10;
ROLLBACK TO s;
UPDATE obs SET qty = 11;
COMMIT;
SELECT * FROM obs ORDER BY id;

--
-- check() enforces, whatever the mode of the table
--
SELECT fence.check('obs', 9);
BEGIN;
SELECT fence.check('obs', 10);
UPDATE obs SET qty = 12;
SELECT fence.raise_mark('obs', 11);
COMMIT;
BEGIN;
SELECT fence.check('obs', 10, lease => 'postgres');
ROLLBACK;
SELECT DISTINCT qty FROM obs;

--
-- Columns in the template: rows of many resources, still one warning
--
SELECT fence.protect('obs', 'obs-{shelf}', mode => 'observe');
UPDATE obs SET qty = 20;
INSERT INTO obs VALUES (4, 'y', 20), (5, 'x', 20), (6, 'w', 20);
UPDATE obs SET shelf = shelf || shelf WHERE id > 3;
DELETE FROM obs WHERE id = 6;
COPY obs FROM stdin;
6	w	20
7	v	20
\.
BEGIN;
SELECT fence.check('obs-x', 1);
UPDATE obs SET qty = 21 WHERE shelf = 'x';
UPDATE obs SET qty = 22 WHERE shelf IN ('x', 'y');
UPDATE obs SET shelf = 'y' WHERE shelf = 'x' AND id = 1;
COMMIT;
-- a row without a resource, and one whose resource has too long a name
UPDATE obs SET shelf = NULL WHERE id = 7;
UPDATE obs SET qty = 23 WHERE id = 7;
UPDATE obs SET shelf = repeat('s', 600) WHERE id = 7;
DELETE FROM obs WHERE id = 7;
-- no row, no warning
UPDATE obs SET qty = 0 WHERE false;
INSERT INTO obs VALUES (1, 'x', 0) ON CONFLICT DO NOTHING;
TRUNCATE obs;
SELECT count(*) FROM obs;
DROP TABLE obs;

--
-- A token column: BEFORE and AFTER ROW together warn once; good tokens are
-- judged and stamped, others are stored as they come
--
CREATE TABLE obs (id int PRIMARY KEY, shelf text, qty int, tok bigint);
SELECT fence.protect('obs', 'obs-tok-{shelf}', 'tok', mode => 'observe');
INSERT INTO obs (id, shelf) VALUES (1, 'x');
INSERT INTO obs (id, shelf) VALUES (2, 'x'), (3, 'x');
INSERT INTO obs VALUES (4, 'x', 1, 0);
INSERT INTO obs VALUES (5, 'x', 1, -5);
COPY obs FROM stdin;
6	x	1	\N
7	x	1	\N
\.
SELECT * FROM obs ORDER BY id;
SELECT fence.mark('obs-tok-x');
-- good ones
UPDATE obs SET qty = 2, tok = 5;
SELECT DISTINCT qty, tok FROM obs;
SELECT fence.mark('obs-tok-x');
BEGIN;
SELECT fence.check('obs-tok-x', 6);
UPDATE obs SET qty = 3;
INSERT INTO obs (id, shelf, qty) VALUES (8, 'x', 3);
COMMIT;
SELECT DISTINCT qty, tok FROM obs;
-- stale by the row; stale by the mark; C03: not set at all
UPDATE obs SET qty = 4, tok = 4;
SELECT DISTINCT qty, tok FROM obs;
SELECT fence.check('obs-tok-x', 9);
UPDATE obs SET qty = 5, tok = 8;
UPDATE obs SET qty = 6;
UPDATE obs SET qty = 6, tok = tok;
SELECT DISTINCT qty, tok FROM obs;
SELECT fence.mark('obs-tok-x');
DELETE FROM obs WHERE id > 6;
-- a new token and rows without one, in one statement: it is presented, they are warned of, once
INSERT INTO obs VALUES (10, 'x', 1, NULL), (11, 'y', 1, 7), (12, 'x', 1, NULL), (13, 'z', 1, 8), (14, 'x', 1, NULL);
SELECT * FROM obs WHERE id >= 10 ORDER BY id;
SELECT fence.mark('obs-tok-y'), fence.mark('obs-tok-z');
-- never issued
SELECT acquired, token FROM fence.acquire('obs-tok-i', 'a', '1 hour');
INSERT INTO obs VALUES (20, 'i', 1, 2);
INSERT INTO obs VALUES (21, 'i', 1, 1);
SELECT fence.mark('obs-tok-i');
-- a row that changes its resource
UPDATE obs SET shelf = 'y' WHERE id = 20;
UPDATE obs SET shelf = 'y', tok = 7 WHERE id = 21;
SELECT * FROM obs WHERE id >= 20 ORDER BY id;
TRUNCATE obs;
SELECT count(*) FROM obs;
-- upsert and MERGE: INSERT, UPDATE and DELETE triggers of one statement
INSERT INTO obs VALUES (1, 'x', 1, NULL), (2, 'x', 1, NULL);
INSERT INTO obs VALUES (1, 'x', 2, 3), (3, 'x', 2, 3) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
MERGE INTO obs o USING (VALUES (1), (2), (3), (4)) v (id) ON o.id = v.id
	WHEN MATCHED AND o.id < 3 THEN UPDATE SET qty = 3
	WHEN MATCHED THEN DELETE
	WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'x', 3);
MERGE INTO obs o USING (VALUES (1)) v (id) ON o.id = v.id WHEN MATCHED THEN UPDATE SET tok = 2;
SELECT * FROM obs ORDER BY id;
-- triggers of the user that write, and one that makes what was judged void
CREATE TABLE obs_noise (id int);
CREATE FUNCTION obs_noise() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO obs_noise VALUES (NEW.id);
	RETURN NEW;
END
$$;
CREATE TRIGGER noise BEFORE INSERT OR UPDATE ON obs FOR EACH ROW EXECUTE FUNCTION obs_noise();
UPDATE obs SET qty = 4;
INSERT INTO obs VALUES (5, 'x', 4), (6, 'x', 4);
DROP TRIGGER noise ON obs;
CREATE FUNCTION obs_late() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.tok = 1;
	RETURN NEW;
END
$$;
CREATE TRIGGER "~~late" BEFORE UPDATE ON obs FOR EACH ROW EXECUTE FUNCTION obs_late();
UPDATE obs SET tok = 20 WHERE id IN (1, 4);
SELECT * FROM obs ORDER BY id;
DROP TABLE obs, obs_noise;
DROP FUNCTION obs_noise(), obs_late();

-- marks => 'row': what a new holder left behind
CREATE TABLE obs (id int PRIMARY KEY, qty int, tok bigint);
SELECT fence.protect('obs', 'obs-row-{id}', 'tok', 'row', mode => 'observe');
INSERT INTO obs VALUES (1, 1, 5), (2, 1, 5);
UPDATE obs SET qty = 2, tok = 4;
DELETE FROM obs;
SELECT fence.check('obs-row-1', 9);
INSERT INTO obs VALUES (1, 3, 8);
INSERT INTO obs VALUES (2, 3, 8);
INSERT INTO obs VALUES (3, 3, NULL);
UPDATE obs SET id = 1 + id WHERE id = 3;
SELECT * FROM obs ORDER BY id;
DROP TABLE obs;

-- partitions: one warning, however many there are, also for rows that move
CREATE TABLE obs (region text, id int, tok bigint) PARTITION BY LIST (region);
CREATE TABLE obs_a PARTITION OF obs FOR VALUES IN ('a');
CREATE TABLE obs_b PARTITION OF obs FOR VALUES IN ('b');
SELECT fence.protect('obs', 'obs-part-{id}', mode => 'observe');
INSERT INTO obs VALUES ('a', 1), ('b', 2), ('a', 3), ('b', 4);
UPDATE obs SET tok = 0;
UPDATE obs SET region = CASE region WHEN 'a' THEN 'b' ELSE 'a' END;
COPY obs FROM stdin;
a	5	\N
b	6	\N
\.
DELETE FROM obs WHERE id > 4;
SELECT fence.protect('obs', 'obs-part-{id}', 'tok', mode => 'observe');
INSERT INTO obs VALUES ('a', 5), ('b', 6);
UPDATE obs SET tok = NULL;
UPDATE obs SET region = CASE region WHEN 'a' THEN 'b' ELSE 'a' END;
DELETE FROM obs WHERE id > 4;
SELECT * FROM obs ORDER BY id;
-- the root and both partitions
TRUNCATE obs;
DROP TABLE obs;

-- a cascade: the statement on the parent and the action on the child
CREATE TABLE obs_boss (id int PRIMARY KEY);
CREATE TABLE obs (id int REFERENCES obs_boss ON DELETE CASCADE ON UPDATE CASCADE);
INSERT INTO obs_boss VALUES (1), (2), (3);
INSERT INTO obs VALUES (1), (1), (2);
SELECT fence.protect('obs', 'obs-fk', mode => 'observe');
DELETE FROM obs_boss WHERE id = 1;
UPDATE obs_boss SET id = 20 WHERE id = 2;
DELETE FROM obs_boss WHERE id = 3;
TABLE obs;
DROP TABLE obs, obs_boss;

--
-- At commit: a newer token is a warning too, where only a guard that observes
-- has asked; check() makes it an error
--
CREATE TABLE obs (id int PRIMARY KEY, qty int, tok bigint);
SELECT fence.protect('obs', 'obs-commit', 'tok', mode => 'observe');
INSERT INTO obs VALUES (1, 1, 5);
BEGIN;
UPDATE obs SET qty = 2, tok = 6;
SELECT fence.raise_mark('obs-commit', 7);
COMMIT;
TABLE obs;
BEGIN;
UPDATE obs SET qty = 3, tok = 7;
SELECT fence.check('obs-commit', 7);
SELECT fence.raise_mark('obs-commit', 8);
COMMIT;
BEGIN;
SELECT fence.check('obs-commit', 8);
UPDATE obs SET qty = 4, tok = 8;
SELECT fence.raise_mark('obs-commit', 9);
COMMIT;
BEGIN;
UPDATE obs SET qty = 5, tok = 9;
SAVEPOINT s;
SELECT fence.check('obs-commit', 9);
ROLLBACK TO s;
SELECT fence.raise_mark('obs-commit', 10);
COMMIT;
TABLE obs;
-- two tables, one resource: the stricter one counts, whichever came first
CREATE TABLE enf (id int PRIMARY KEY, tok bigint);
CREATE TABLE enf_plain (id int PRIMARY KEY);
SELECT fence.protect('enf', 'obs-commit', 'tok'), fence.protect('enf_plain', 'obs-commit');
BEGIN;
UPDATE obs SET qty = 6, tok = 10;
INSERT INTO enf VALUES (1, 10);
SELECT fence.raise_mark('obs-commit', 11);
COMMIT;
BEGIN;
INSERT INTO enf VALUES (2, 11);
UPDATE obs SET qty = 7, tok = 11;
SELECT fence.raise_mark('obs-commit', 12);
COMMIT;
BEGIN;
UPDATE obs SET qty = 8, tok = 12;
INSERT INTO enf_plain VALUES (3);
SELECT fence.raise_mark('obs-commit', 13);
COMMIT;
BEGIN;
INSERT INTO enf VALUES (4, 13);
UPDATE obs SET qty = 9, tok = 14;
SELECT fence.raise_mark('obs-commit', 15);
COMMIT;
-- refused by the one, warned of by the other
SELECT fence.check('obs-commit', 20);
INSERT INTO enf VALUES (5, 11);
UPDATE obs SET tok = 11;
BEGIN;
UPDATE obs SET tok = 20;
INSERT INTO enf VALUES (6, 20);
INSERT INTO enf_plain VALUES (6);
COMMIT;
SELECT id FROM enf UNION ALL SELECT id FROM enf_plain;
TABLE obs;
DROP TABLE obs, enf, enf_plain;

-- a lease: not live at the write, not live at commit
CREATE TABLE obs (id int PRIMARY KEY, qty int);
SELECT fence.protect('obs', 'obs-lease', lease => 'postgres', mode => 'observe');
SELECT acquired, token FROM fence.acquire('obs-lease', 'a', '1 hour');
BEGIN;
SELECT fence.check('obs-lease', 1);
INSERT INTO obs VALUES (1, 1), (2, 1);
COMMIT;
BEGIN;
SELECT fence.check('obs-lease', 1);
UPDATE obs SET qty = 2;
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'obs-lease';
COMMIT;
BEGIN;
SELECT fence.check('obs-lease', 1);
UPDATE obs SET qty = 3;
COMMIT;
TABLE obs;
-- the token itself still has to be the newest, that is what check() asked for
BEGIN;
SELECT fence.check('obs-lease', 1);
UPDATE obs SET qty = 4;
SELECT fence.raise_mark('obs-lease', 2);
COMMIT;
TABLE obs;

-- a lease server that cannot be asked, at the write or at commit; or may not be used; or is gone
CREATE SERVER obs_server FOREIGN DATA WRAPPER fence_redis OPTIONS (socket '/nonexistent');
CREATE SERVER obs_late FOREIGN DATA WRAPPER fence_redis OPTIONS (socket '/nonexistent', validate 'commit');
SELECT fence.protect('obs', 'obs-server', lease => 'obs_server', mode => 'observe');
BEGIN;
SELECT fence.check('obs-server', 1, 'a');
UPDATE obs SET qty = 5;
COMMIT;
CREATE ROLE regress_fence_obs;
SELECT fence.grant_writer('regress_fence_obs');
GRANT ALL ON obs TO regress_fence_obs;
SET ROLE regress_fence_obs;
BEGIN;
SELECT fence.check('obs-server', 1, 'a');
UPDATE obs SET qty = 6;
COMMIT;
RESET ROLE;
SELECT fence.protect('obs', 'obs-server', lease => 'obs_late', mode => 'observe');
BEGIN;
SELECT fence.check('obs-server', 1, 'a');
UPDATE obs SET qty = 7;
COMMIT;
DROP SERVER obs_server;
BEGIN;
SELECT fence.check('obs-server', 1, 'a');
UPDATE obs SET qty = 8;
DROP SERVER obs_late;
COMMIT;
BEGIN;
SELECT fence.check('obs-server', 1, 'a');
UPDATE obs SET qty = 8;
COMMIT;
CREATE FOREIGN DATA WRAPPER obs_wrapper;
CREATE SERVER obs_late FOREIGN DATA WRAPPER obs_wrapper;
BEGIN;
SELECT fence.check('obs-server', 1, 'a');
UPDATE obs SET qty = 9;
COMMIT;
TABLE obs;
DROP SERVER obs_late;
DROP FOREIGN DATA WRAPPER obs_wrapper;
DROP OWNED BY regress_fence_obs;
DROP ROLE regress_fence_obs;

--
-- Switching: at once, in both directions, never without a guard between
--
SELECT fence.protect('obs', 'obs-switch', mode => 'observe');
UPDATE obs SET qty = 10;
BEGIN;
SELECT fence.protect('obs', 'obs-switch');
SAVEPOINT s;
UPDATE obs SET qty = 11;
ROLLBACK TO s;
SELECT fence.protect('obs', 'obs-switch', mode => 'observe');
UPDATE obs SET qty = 12;
ROLLBACK;
UPDATE obs SET qty = 13;
SELECT fence.protect('obs', 'obs-switch', mode => 'enforce');
UPDATE obs SET qty = 14;
SELECT mode FROM fence.protected_tables WHERE target = 'obs'::regclass;
TABLE obs;
-- another set of triggers
SELECT fence.protect('obs', 'obs-switch-{id}', mode => 'observe');
UPDATE obs SET qty = 15;
SELECT fence.protect('obs', 'obs-switch-{id}');
UPDATE obs SET qty = 16;
TABLE obs;
-- a presentation made while it observed, judged when it no longer does
ALTER TABLE obs ADD tok bigint;
SELECT fence.protect('obs', 'obs-switch-tok', 'tok', mode => 'observe');
BEGIN;
UPDATE obs SET tok = 5;
SELECT fence.protect('obs', 'obs-switch-tok', 'tok');
UPDATE obs SET tok = 5;
SELECT fence.raise_mark('obs-switch-tok', 6);
COMMIT;
SELECT mode FROM fence.protected_tables WHERE target = 'obs'::regclass;

-- a policy that cannot be read any more: warned of as well, an enforcing one refuses
SELECT fence.protect('obs', 'obs-switch-{id}', 'tok', mode => 'observe');
ALTER TABLE obs RENAME tok TO token;
UPDATE obs SET qty = 20;
INSERT INTO obs VALUES (9, 20, 1);
TRUNCATE obs;
ALTER TABLE obs RENAME token TO tok;
INSERT INTO obs VALUES (9, 20, 1);
ALTER TABLE obs ALTER tok TYPE text;
UPDATE obs SET qty = 21, tok = 'random';
TABLE obs;
DELETE FROM obs;
SELECT count(*) FROM obs;
ALTER TABLE obs DROP tok, ADD tok bigint;
SELECT fence.protect('obs', 'obs-switch-{id}', 'tok');
INSERT INTO obs VALUES (9, 20, 1);
ALTER TABLE obs RENAME tok TO token;
UPDATE obs SET qty = 22;
ALTER TABLE obs RENAME token TO tok;

-- no other mode
SELECT mode, refusal(format('SELECT fence.protect(%L, %L, mode => %L)', 'obs', 'r', mode), 'mode')
FROM unnest('{Observe,"",off,NULL}'::text[]) mode;
SELECT resource, mode FROM fence.protected_tables WHERE target = 'obs'::regclass;
DROP TABLE obs;
