-- More ways in which a row can change: cursors, MERGE with several actions, rows
-- hit twice, generated columns, RETURNING, deferred constraints, views, row
-- security, functions.  The plain ones are in guard_resource, guard_row, guard_both.
--
-- Field cases: C02 C03 C06 C11 C20 C25
\set VERBOSITY sqlstate
SET default_transaction_isolation = 'read committed';
SET client_min_messages = warning;
SET row_security = on;

-- the same table under each kind of marks
CREATE TABLE w_res (id int PRIMARY KEY, shelf text NOT NULL, qty int, tok bigint);
CREATE TABLE w_row (LIKE w_res INCLUDING ALL);
CREATE TABLE w_both (LIKE w_res INCLUDING ALL);
SELECT fence.protect('w_res', 'w:{shelf}'), fence.protect('w_row', 'w:{shelf}', 'tok', 'row'), fence.protect('w_both', 'w:{shelf}', 'tok');
CREATE VIEW w_all AS
	SELECT * FROM (
		SELECT 'res' AS t, * FROM w_res UNION ALL SELECT 'row', * FROM w_row UNION ALL SELECT 'both', * FROM w_both) u
	ORDER BY id, t COLLATE "C";
BEGIN;
SELECT fence.check('w:x', 5), fence.check('w:y', 5);
INSERT INTO w_res VALUES (1, 'x', 1), (2, 'y', 1);
INSERT INTO w_row VALUES (1, 'x', 1), (2, 'y', 1);
INSERT INTO w_both VALUES (1, 'x', 1), (2, 'y', 1);
COMMIT;
TABLE w_all;

-- WHERE CURRENT OF
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM w_res WHERE id = 1;
FETCH c;
SAVEPOINT s;
UPDATE w_res SET qty = 2 WHERE CURRENT OF c;
ROLLBACK TO s;
DELETE FROM w_res WHERE CURRENT OF c;
ROLLBACK TO s;
SELECT fence.check('w:y', 5);
UPDATE w_res SET qty = 2 WHERE CURRENT OF c;
ROLLBACK TO s;
SELECT fence.check('w:x', 5);
UPDATE w_res SET qty = 2 WHERE CURRENT OF c RETURNING qty;
COMMIT;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM w_row WHERE id = 1 FOR UPDATE;
FETCH c;
SAVEPOINT s;
UPDATE w_row SET qty = 2 WHERE CURRENT OF c;
ROLLBACK TO s;
UPDATE w_row SET qty = 2, tok = 4 WHERE CURRENT OF c;
ROLLBACK TO s;
UPDATE w_row SET qty = 2, tok = 6 WHERE CURRENT OF c;
DELETE FROM w_row WHERE CURRENT OF c;
COMMIT;
BEGIN;
DECLARE c CURSOR FOR SELECT * FROM w_both WHERE id = 1 FOR UPDATE;
FETCH c;
UPDATE w_both SET qty = 2, tok = 5 WHERE CURRENT OF c;
COMMIT;
TABLE w_all;
-- a cursor that presents: when it is fetched from; held over the commit, at the commit
BEGIN;
DECLARE c CURSOR FOR SELECT fence.check('w:x', 5);
SAVEPOINT s;
UPDATE w_res SET qty = 3 WHERE id = 1;
ROLLBACK TO s;
FETCH c;
UPDATE w_res SET qty = 3 WHERE id = 1;
COMMIT;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT fence.check('w:x', 4);
COMMIT;
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT fence.check('w:x', 5);
COMMIT;
FETCH c;
UPDATE w_res SET qty = 4 WHERE id = 1;
CLOSE c;
TABLE w_all;

-- UPDATE ... FROM that hits a row twice: one of them, and never a stale one
UPDATE w_row SET qty = 5, tok = v.t FROM (VALUES (4), (3)) v (t) WHERE id = 1;
UPDATE w_both SET qty = 5, tok = v.t FROM (VALUES (4), (3)) v (t) WHERE id = 1;
UPDATE w_row SET qty = 5, tok = v.t FROM (VALUES (20), (21)) v (t) WHERE id = 1;
SELECT qty, tok IN (20, 21) AS one_of_them FROM w_row WHERE id = 1;
UPDATE w_both SET qty = 5, tok = v.t FROM (VALUES (5), (5)) v (t) WHERE id = 1;
BEGIN;
SELECT fence.check('w:x', 5);
UPDATE w_res SET qty = v.q FROM (VALUES (6), (7)) v (q) WHERE id = 1;
DELETE FROM w_res USING (VALUES (1), (1)) v (id) WHERE w_res.id = v.id RETURNING w_res.id;
ROLLBACK;
-- data-modifying CTEs: all of them are judged, whatever is read of them
WITH a AS (UPDATE w_res SET qty = 0 WHERE id = 1) SELECT 1;
WITH a AS (INSERT INTO w_row VALUES (3, 'x', 0)), b AS (SELECT 1) SELECT * FROM b;
WITH a AS (DELETE FROM w_both WHERE id = 1 RETURNING *) SELECT 1 FROM a LIMIT 0;
-- ... in one statement with the presentation
WITH p AS MATERIALIZED (SELECT fence.check('w:x', 5) AS ok), a AS (UPDATE w_res SET qty = 8 FROM p WHERE ok AND shelf = 'x' RETURNING id),
	b AS (UPDATE w_both SET qty = 8 FROM p WHERE ok AND shelf = 'x' RETURNING id)
SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b;
-- ... a token set by the one is presented for the other
WITH a AS (UPDATE w_both SET qty = 9, tok = 5 WHERE id = 1 RETURNING shelf)
INSERT INTO w_res SELECT 3, shelf, 9 FROM a RETURNING id;
-- rows moved from one table to the other
WITH a AS (DELETE FROM w_res WHERE id = 3 AND fence.check('w:x', 5) RETURNING *) INSERT INTO w_both SELECT * FROM a RETURNING id, tok;
TABLE w_all;

-- RETURNING shows what is stored, stamped
BEGIN;
SELECT fence.check('w:x', 6);
UPDATE w_both SET qty = 10 WHERE id = 1 RETURNING id, qty, tok;
INSERT INTO w_both VALUES (4, 'x', 10) RETURNING tok, fence.mark('w:x');
DELETE FROM w_both WHERE id = 4 RETURNING tok;
COMMIT;
INSERT INTO w_both VALUES (4, 'x', 10) RETURNING fence.check('w:x', 6);
INSERT INTO w_res VALUES (4, 'x', 10) RETURNING fence.check('w:x', 6);

-- MERGE: several actions, in one statement
BEGIN;
SELECT fence.check('w:x', 7), fence.check('w:y', 7);
MERGE INTO w_both w USING (VALUES (1), (2), (3), (5)) v (id) ON w.id = v.id
	WHEN MATCHED AND w.id = 1 THEN UPDATE SET qty = 11
	WHEN MATCHED AND w.id = 2 THEN UPDATE SET tok = 7, qty = 11
	WHEN MATCHED THEN DELETE
	WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'y', 11);
-- again: the tokens are stored now, and still the context's
MERGE INTO w_both w USING (VALUES (1), (2), (5)) v (id) ON w.id = v.id
	WHEN MATCHED AND w.id = 1 THEN UPDATE SET qty = 12
	WHEN MATCHED THEN UPDATE SET tok = 7, qty = 12
	WHEN NOT MATCHED THEN DO NOTHING;
MERGE INTO w_row w USING (VALUES (1), (2)) v (id) ON w.id = v.id
	WHEN MATCHED AND w.id = 1 THEN UPDATE SET tok = 22, qty = 12
	WHEN MATCHED THEN UPDATE SET qty = 12
	WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'x', 12, 23);
MERGE INTO w_res w USING (VALUES (1), (2), (3)) v (id) ON w.id = v.id
	WHEN MATCHED AND w.id = 1 THEN UPDATE SET shelf = 'y', qty = 12
	WHEN MATCHED THEN UPDATE SET qty = 12
	WHEN NOT MATCHED THEN INSERT VALUES (v.id, 'x', 12);
TABLE w_all;
COMMIT;
-- without: a token that is set in another action does not count
MERGE INTO w_both w USING (VALUES (1)) v (id) ON w.id = v.id
	WHEN MATCHED AND false THEN UPDATE SET tok = 99
	WHEN MATCHED THEN UPDATE SET qty = 13;
MERGE INTO w_row w USING (VALUES (2)) v (id) ON w.id = v.id
	WHEN MATCHED AND false THEN UPDATE SET tok = 99
	WHEN MATCHED THEN DELETE;
MERGE INTO w_row w USING (VALUES (9)) v (id) ON w.id = v.id
	WHEN MATCHED THEN UPDATE SET tok = 99
	WHEN NOT MATCHED THEN INSERT (id, shelf) VALUES (v.id, 'x');
-- one action with a token, one without: all or nothing
MERGE INTO w_row w USING (VALUES (1), (2)) v (id) ON w.id = v.id
	WHEN MATCHED AND w.id = 1 THEN UPDATE SET tok = 30
	WHEN MATCHED THEN UPDATE SET qty = 13;
-- a lower one in one of them
MERGE INTO w_row w USING (VALUES (1, 30), (2, 6)) v (id, t) ON w.id = v.id WHEN MATCHED THEN UPDATE SET tok = v.t;
MERGE INTO w_row w USING (VALUES (1, 31), (2, 8)) v (id, t) ON w.id = v.id WHEN MATCHED THEN UPDATE SET tok = v.t;
-- an UPDATE that comes later in the session is not taken for a MERGE
UPDATE w_row SET qty = 14, tok = tok WHERE id = 2;
-- no row: nothing to judge
MERGE INTO w_row w USING (VALUES (77)) v (id) ON w.id = v.id WHEN MATCHED THEN UPDATE SET qty = 13;
MERGE INTO w_row w USING (VALUES (1)) v (id) ON w.id = v.id WHEN MATCHED THEN DO NOTHING;
TABLE w_all;

-- ON CONFLICT DO NOTHING on a row that is there: no row mark moves, and of the
-- resource only what was presented
INSERT INTO w_row VALUES (1, 'x', 0, 99) ON CONFLICT DO NOTHING;
INSERT INTO w_row VALUES (1, 'x', 0, 3) ON CONFLICT DO NOTHING;
INSERT INTO w_row (id, shelf) VALUES (1, 'x') ON CONFLICT DO NOTHING;
INSERT INTO w_res (id, shelf) VALUES (1, 'x') ON CONFLICT DO NOTHING;
SELECT tok FROM w_row WHERE id = 1;
SELECT fence.mark('w:x');
-- C02: DO UPDATE ... WHERE that leaves the row alone
INSERT INTO w_row VALUES (1, 'x', 0, 99) ON CONFLICT (id) DO UPDATE SET tok = excluded.tok WHERE false;
INSERT INTO w_both VALUES (1, 'x', 0, 7) ON CONFLICT (id) DO UPDATE SET qty = 0 WHERE false RETURNING id;
SELECT tok FROM w_row WHERE id = 1;
-- COPY: a stale row among good ones, none at all, presented
COPY w_row FROM stdin;
20	x	1	50
21	x	1	3
\.
COPY w_both FROM stdin;
20	x	1	7
21	x	1	6
\.
COPY w_res (id, shelf) FROM stdin;
20	x
\.
SELECT count(*) FROM w_all WHERE id >= 20;
BEGIN;
SELECT fence.check('w:x', 7);
COPY w_both (id, shelf) FROM stdin;
20	x
21	x
\.
COPY w_res (shelf, id) FROM stdin WITH (FORMAT csv);
x,20
x,21
\.
COMMIT;
SELECT t, count(*), min(tok), max(tok) FROM w_all WHERE id >= 20 GROUP BY t ORDER BY t COLLATE "C";
-- C06: TRUNCATE of several tables at once, and with RESTART IDENTITY
TRUNCATE w_res, w_row RESTART IDENTITY;
SELECT count(*) FROM w_all;

DROP VIEW w_all;
DROP TABLE w_res, w_row, w_both;
-- ... with a token column: the token must not be below what any row holds
CREATE TABLE t (id int PRIMARY KEY, tok bigint);
SELECT fence.protect('t', 'w-truncate', 'tok', 'row');
INSERT INTO t VALUES (1, 5), (2, 9), (3, 7);
TRUNCATE t;
BEGIN;
SELECT fence.check('w-truncate', 8);
SAVEPOINT s;
TRUNCATE t;
ROLLBACK TO s;
DELETE FROM t WHERE id = 3;
TRUNCATE t;
ROLLBACK;
SELECT count(*) FROM t;
BEGIN;
SELECT fence.check('w-truncate', 9);
-- rows of this very transaction count
SAVEPOINT s;
INSERT INTO t VALUES (4, 10);
TRUNCATE t;
ROLLBACK TO s;
INSERT INTO t VALUES (4, NULL);
TRUNCATE t;
SELECT count(*) FROM t;
COMMIT;
-- the mark that stays keeps old holders out
INSERT INTO t VALUES (1, 8);
INSERT INTO t VALUES (1, 12);
SELECT fence.protect('t', 'w-truncate', 'tok', 'row', mode => 'observe');
BEGIN;
SELECT fence.check('w-truncate', 11);
TRUNCATE t;
SELECT count(*) FROM t;
ROLLBACK;
SELECT fence.protect('t', 'w-truncate', 'tok');
BEGIN;
SELECT fence.check('w-truncate', 11);
TRUNCATE t;
ROLLBACK;
BEGIN;
SELECT fence.check('w-truncate', 12);
TRUNCATE t;
COMMIT;
DROP TABLE t;
-- ... in any of the partitions
CREATE TABLE t (region text, tok bigint) PARTITION BY LIST (region);
CREATE TABLE t_a PARTITION OF t FOR VALUES IN ('a');
CREATE TABLE t_b (tok bigint, region text);
ALTER TABLE t ATTACH PARTITION t_b FOR VALUES IN ('b');
SELECT fence.protect('t', 'w-truncate-parted', 'tok', 'row');
INSERT INTO t VALUES ('a', 5), ('b', 9);
BEGIN;
SELECT fence.check('w-truncate-parted', 8);
SAVEPOINT s;
TRUNCATE t;
ROLLBACK TO s;
TRUNCATE t_b;
ROLLBACK TO s;
TRUNCATE t_a;
COMMIT;
TABLE t;
BEGIN;
SELECT fence.check('w-truncate-parted', 9);
TRUNCATE t;
COMMIT;
TABLE t;
DROP TABLE t;

-- C25: generated columns that depend on the token are computed after it is stamped
CREATE TABLE gen (id int PRIMARY KEY, tok bigint, twice bigint GENERATED ALWAYS AS (tok * 2) STORED, qty int);
SELECT fence.protect('gen', 'gen', 'tok');
BEGIN;
SELECT fence.check('gen', 5);
INSERT INTO gen (id) VALUES (1) RETURNING *;
COMMIT;
BEGIN;
SELECT fence.check('gen', 6);
UPDATE gen SET qty = 1 RETURNING *;
COPY gen (id) FROM stdin;
2
\.
COMMIT;
UPDATE gen SET tok = 7 RETURNING *;
SELECT * FROM gen WHERE twice <> tok * 2;
-- and so are constraints, and expressions in indexes
ALTER TABLE gen ADD CHECK (tok < 10);
CREATE UNIQUE INDEX ON gen ((tok * 100 + id));
BEGIN;
SELECT fence.check('gen', 10);
UPDATE gen SET qty = 2;
COMMIT;
BEGIN;
SELECT fence.check('gen', 8);
UPDATE gen SET qty = 2;
SET LOCAL enable_seqscan = off;
SELECT id FROM gen WHERE tok * 100 + id = 802;
COMMIT;
DROP TABLE gen;

-- Deferred: unique and foreign keys, and triggers that write at commit
CREATE TABLE def (id int, qty int, n int PRIMARY KEY);
ALTER TABLE def ADD UNIQUE (id) DEFERRABLE INITIALLY DEFERRED;
CREATE TABLE def_child (id int REFERENCES def (n) DEFERRABLE INITIALLY DEFERRED);
INSERT INTO def VALUES (1, 1, 1), (2, 1, 2);
SELECT fence.protect('def', 'def'), fence.protect('def_child', 'def-child-{id}');
BEGIN;
SELECT fence.check('def', 5);
UPDATE def SET id = 3 - id;
COMMIT;
BEGIN;
SELECT fence.check('def', 5), fence.check('def-child-3', 5);
INSERT INTO def_child VALUES (3);
INSERT INTO def VALUES (3, 1, 3);
COMMIT;
BEGIN;
SELECT fence.check('def', 6);
UPDATE def SET id = 1;
COMMIT;
-- the mark goes back with the rest
SELECT fence.mark('def');
TABLE def ORDER BY id;
CREATE FUNCTION at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_ARGV[0] <> 'none' THEN
		PERFORM fence.check('def', TG_ARGV[0]::bigint);
	END IF;
	UPDATE def SET qty = qty + 100;
	RETURN NULL;
END
$$;
CREATE TABLE def_log (id int);
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON def_log DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit('none');
BEGIN;
INSERT INTO def_log VALUES (1);
COMMIT;
BEGIN;
INSERT INTO def_log VALUES (1);
SELECT fence.check('def', 5);
COMMIT;
BEGIN;
SELECT fence.check('def', 5);
INSERT INTO def_log VALUES (2);
SELECT fence.raise_mark('def', 6);
COMMIT;
DROP TRIGGER at_commit ON def_log;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON def_log DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit('4');
BEGIN;
INSERT INTO def_log VALUES (3);
COMMIT;
DROP TRIGGER at_commit ON def_log;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON def_log DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_commit('5');
BEGIN;
INSERT INTO def_log VALUES (4);
COMMIT;
-- ... at once, where that is asked for
BEGIN;
INSERT INTO def_log VALUES (5);
SET CONSTRAINTS ALL IMMEDIATE;
UPDATE def SET qty = 0 WHERE id = 1;
COMMIT;
SELECT * FROM def ORDER BY id;
TABLE def_log ORDER BY id;
DROP TABLE def_child, def_log, def;
DROP FUNCTION at_commit();

-- Views: updatable ones, one with a check, one with INSTEAD OF triggers of the user
CREATE TABLE base (id int PRIMARY KEY, shelf text NOT NULL, qty int, tok bigint);
SELECT fence.protect('base', 'base:{shelf}', 'tok');
CREATE VIEW simple AS SELECT id AS ident, shelf, qty FROM base;
CREATE VIEW checked AS SELECT * FROM base WHERE tok > 5 WITH CHECK OPTION;
CREATE VIEW joined AS SELECT b.id, b.qty, 'x'::text AS extra FROM base b JOIN base c USING (id);
CREATE FUNCTION through() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE base SET qty = NEW.qty WHERE id = OLD.id;
	RETURN NEW;
END
$$;
CREATE TRIGGER through INSTEAD OF UPDATE ON joined FOR EACH ROW EXECUTE FUNCTION through();
INSERT INTO simple VALUES (1, 'x', 1);
INSERT INTO simple SELECT 1, 'x', 1 WHERE fence.check('base:x', 5);
UPDATE simple SET qty = 2;
DELETE FROM simple;
UPDATE simple SET qty = 2 WHERE fence.check('base:' || shelf, 5);
MERGE INTO base b USING simple s ON b.id = s.ident WHEN MATCHED THEN UPDATE SET qty = 3;
INSERT INTO simple SELECT 1, 'x', 3 WHERE fence.check('base:x', 5) ON CONFLICT (ident) DO UPDATE SET qty = excluded.qty RETURNING *;
-- the check sees the stamped row
INSERT INTO checked (id, shelf) SELECT 2, 'x' WHERE fence.check('base:x', 5);
INSERT INTO checked (id, shelf) SELECT 2, 'x' WHERE fence.check('base:x', 6) RETURNING *;
UPDATE checked SET tok = 5;
UPDATE checked SET tok = 7;
UPDATE joined SET qty = 4;
BEGIN;
SELECT fence.check('base:x', 7);
UPDATE joined SET qty = 4;
COMMIT;
TABLE base ORDER BY id;
DROP VIEW simple, checked, joined;
DROP FUNCTION through();

-- C20: row security on the table: rows that a role does not see are not judged,
-- WITH CHECK sees the stamped token, and a policy hides no mark
CREATE ROLE regress_fence_w;
SELECT fence.grant_writer('regress_fence_w');
GRANT ALL ON base TO regress_fence_w;
ALTER TABLE base ENABLE ROW LEVEL SECURITY;
CREATE POLICY p ON base TO regress_fence_w USING (id <> 2) WITH CHECK (tok > 7);
SET ROLE regress_fence_w;
DELETE FROM base WHERE id = 2;
UPDATE base SET qty = 5;
UPDATE base SET qty = 5, tok = 6;
UPDATE base SET qty = 5, tok = 7;
UPDATE base SET qty = 5, tok = 8;
BEGIN;
SELECT fence.check('base:x', 8);
UPDATE base SET qty = 6 RETURNING *;
INSERT INTO base VALUES (3, 'x', 6);
SAVEPOINT s;
INSERT INTO base VALUES (2, 'x', 6) ON CONFLICT DO NOTHING;
INSERT INTO base VALUES (2, 'x', 6) ON CONFLICT (id) DO UPDATE SET qty = 7;
ROLLBACK TO s;
COMMIT;
UPDATE base SET qty = 7, tok = 7 WHERE id = 3;
RESET ROLE;
TABLE base ORDER BY id;

-- SECURITY DEFINER: presented by the caller, written by the function, and the reverse
CREATE FUNCTION put(i int, q int) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp AS
	'UPDATE base SET qty = q WHERE id = i';
CREATE FUNCTION present(t bigint) RETURNS boolean LANGUAGE sql SECURITY DEFINER SET search_path = pg_temp AS
	$$SELECT fence.check('base:x', t)$$;
SET ROLE regress_fence_w;
SELECT put(1, 10);
SELECT put(1, 10) FROM fence.check('base:x', 8);
BEGIN;
SELECT present(8);
UPDATE base SET qty = 11 WHERE id = 3;
SELECT put(2, 11);
COMMIT;
SELECT present(7);
RESET ROLE;
TABLE base ORDER BY id;
DROP FUNCTION put(int, int), present(bigint);

-- PL/pgSQL: a block that catches the refusal; loops; what was presented in the block is taken back
CREATE FUNCTION try(t bigint, q int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fence.check('base:x', t);
	UPDATE base SET qty = q;
	RETURN 'written';
EXCEPTION
	WHEN SQLSTATE 'PF001' THEN
		RETURN 'stale';
	WHEN division_by_zero THEN
		RETURN 'failed';
END
$$;
SELECT try(7, 20), try(8, 21);
SELECT DISTINCT qty FROM base;
DO $$
BEGIN
	BEGIN
		PERFORM fence.check('base:x', 9);
		UPDATE base SET qty = 22;
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	UPDATE base SET qty = 23;
END
$$;
SELECT fence.mark('base:x');
DO $$
DECLARE
	r record;
BEGIN
	PERFORM fence.check('base:x', 8);
	FOR r IN SELECT id FROM base LOOP
		UPDATE base SET qty = 30 + r.id WHERE id = r.id;
	END LOOP;
END
$$;
SELECT id, qty, tok FROM base ORDER BY id;
-- a procedure that commits: the token does not live on
CREATE PROCEDURE steps() LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fence.check('base:x', 8);
	UPDATE base SET qty = 40;
	COMMIT;
	UPDATE base SET qty = 41;
END
$$;
CALL steps();
SELECT DISTINCT qty FROM base;
DROP PROCEDURE steps();
DROP FUNCTION try(bigint, int);
-- EXECUTE, prepared statements, EXPLAIN ANALYZE
PREPARE w AS UPDATE base SET qty = $1;
EXECUTE w(50);
BEGIN;
SELECT fence.check('base:x', 8);
EXECUTE w(50);
COMMIT;
EXECUTE w(51);
EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) UPDATE base SET qty = 52;
SELECT DISTINCT qty FROM base;
DEALLOCATE w;
-- rules that rewrite the statement
CREATE RULE soft AS ON DELETE TO base DO INSTEAD UPDATE base SET qty = -1 WHERE id = OLD.id;
DELETE FROM base;
DELETE FROM base WHERE fence.check('base:x', 8);
SELECT DISTINCT qty FROM base;
DROP TABLE base;
DROP OWNED BY regress_fence_w;
DROP ROLE regress_fence_w;
