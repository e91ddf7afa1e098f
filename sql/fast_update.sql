-- pg_fence.fast_update: the guard without its triggers.  Where it takes their
-- place it says what they say, and where it does not they fire.
--
-- Field cases: B04 C02 C10 C12 C15 C16
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET default_transaction_isolation = 'read committed';
SET track_functions = 'all';
-- where the order of rows decides what happens
SET enable_hashjoin = off;
SET enable_mergejoin = off;

CREATE TABLE job (id int PRIMARY KEY, shelf text NOT NULL, qty int CHECK (qty < 100), tok bigint);
SELECT fence.protect('job', 'job:{shelf}', 'tok', 'row');
INSERT INTO job VALUES (1, 'a', 1, 5), (2, 'a', 1, 5), (3, 'b', 1, 7);
SELECT context, vartype, boot_val, short_desc <> '' AS described FROM pg_settings WHERE name = 'pg_fence.fast_update';

-- Runs statements under the setting and undoes them: how they end, and what is
-- stored then.  A call that ends in an error is not counted.
CREATE FUNCTION attempt(fast text, statements text, stored text, OUT state text, OUT calls bigint, OUT content text) LANGUAGE plpgsql AS $$
DECLARE
	before bigint := coalesce(pg_stat_get_xact_function_calls('fence.guard'::regproc), 0);
BEGIN
	BEGIN
		PERFORM set_config('pg_fence.fast_update', fast, true);
		EXECUTE statements;
		EXECUTE format('SELECT string_agg(t::text, '' '' ORDER BY t) FROM %s t', stored) INTO content;
		SET CONSTRAINTS ALL IMMEDIATE;
		RAISE SQLSTATE 'TRIED';
	EXCEPTION WHEN OTHERS THEN
		state := replace(SQLSTATE, 'TRIED', 'ok');
	END;
	calls := coalesce(pg_stat_get_xact_function_calls('fence.guard'::regproc), 0) - before;
END $$;
-- Both settings: is everything the same but the number of calls?
CREATE FUNCTION compare(statements text, stored text DEFAULT 'job', OUT state text, OUT calls bigint, OUT calls_off bigint, OUT content text, OUT same boolean)
LANGUAGE plpgsql AS $$
DECLARE
	a record := attempt('on', statements, stored);
	b record := attempt('off', statements, stored);
BEGIN
	SELECT a.state, a.calls, b.calls, a.content, (a.state, a.content) IS NOT DISTINCT FROM (b.state, b.content)
	INTO state, calls, calls_off, content, same;
END $$;

--
-- In place of the triggers
--
SELECT fence.check('job:z', 1);
SELECT * FROM compare('UPDATE job SET qty = 2, tok = 9');
SELECT * FROM compare('UPDATE job SET qty = 2, tok = 7');
SELECT * FROM compare('UPDATE job SET qty = 2, tok = 6');
SELECT * FROM compare('UPDATE job SET qty = 2');
SELECT * FROM compare('UPDATE job SET qty = 2, tok = NULL');
SELECT * FROM compare('UPDATE job SET qty = 2, tok = 0');
SELECT * FROM compare('UPDATE job SET qty = 2, tok = -1 WHERE id = 1');
SELECT * FROM compare('UPDATE job SET tok = tok + 1 RETURNING tok');
SELECT * FROM compare('UPDATE job SET tok = 9 WHERE false');
-- presented, and stamped
SELECT * FROM compare($$SELECT fence.check('job:a', 6); UPDATE job SET qty = 2 WHERE shelf = 'a'$$);
SELECT * FROM compare($$SELECT fence.check('job:a', 6); UPDATE job SET qty = 2, tok = NULL WHERE shelf = 'a'$$);
SELECT * FROM compare($$SELECT fence.check('job:a', 6); UPDATE job SET qty = 2$$);
SELECT * FROM compare($$SELECT fence.check('job:a', 4); UPDATE job SET qty = 2 WHERE shelf = 'a'$$);
SELECT * FROM compare($$UPDATE job SET qty = 2 WHERE fence.check('job:' || shelf, 8)$$);
-- the guard comes before the constraints, as a trigger does
SELECT * FROM compare('UPDATE job SET qty = 100, tok = 9');
SELECT * FROM compare('UPDATE job SET qty = 100, tok = 4');
SELECT * FROM compare('UPDATE job SET id = 1, tok = 4 WHERE id = 2');
SELECT * FROM compare('UPDATE job SET id = 1, tok = 9 WHERE id = 2');
-- a row that is hit twice is written and judged once, also if the second time
-- it would be stale, or break a constraint
SELECT * FROM compare('UPDATE job SET qty = v.q, tok = v.t FROM (VALUES (2, 9), (3, 4)) v (q, t) WHERE id = 1');
SELECT * FROM compare('UPDATE job SET qty = v.q, tok = v.t FROM (VALUES (2, 9), (100, 9)) v (q, t) WHERE id = 1');
SELECT * FROM compare('UPDATE job SET qty = v.q, tok = v.t FROM (VALUES (2, 9), (3, -1)) v (q, t) WHERE id = 1');
-- parts of one statement
SELECT * FROM compare('WITH a AS (UPDATE job SET tok = 9 WHERE id = 1 RETURNING tok), b AS (UPDATE job SET tok = 8 WHERE id = 3) SELECT * FROM a');
SELECT * FROM compare('WITH a AS (UPDATE job SET tok = 9 WHERE id = 1), b AS (UPDATE job SET tok = 6 WHERE id = 3) SELECT 1');
SELECT * FROM compare('WITH a AS (UPDATE job SET tok = 9 WHERE id = 1) UPDATE job SET tok = 8, qty = 2 WHERE id < 3');
-- the INSERT keeps both of its triggers beside the UPDATE
SELECT * FROM compare($$WITH a AS (INSERT INTO job VALUES (4, 'd', 1, 1)) UPDATE job SET tok = 9$$);
SELECT * FROM compare($$WITH a AS (UPDATE job SET tok = 9) INSERT INTO job VALUES (4, 'd', 1, 1)$$);
SELECT * FROM compare($$WITH a AS (DELETE FROM job WHERE id = 3 AND fence.check('job:b', 7)) UPDATE job SET tok = 9 WHERE id < 3$$);
-- a function that changes the same row, or another one
CREATE FUNCTION touch(i int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN UPDATE job SET qty = 3, tok = 8 WHERE id = i; RETURN 4; END $$;
SELECT * FROM compare('UPDATE job SET qty = touch(1), tok = 9 WHERE id = 1');
SELECT * FROM compare('UPDATE job SET qty = 100, tok = 9 WHERE id = 1 AND touch(1) = 4');
SELECT * FROM compare('UPDATE job SET qty = touch(2), tok = 9 WHERE id = 1');
SELECT * FROM compare('UPDATE job SET qty = touch(3), tok = 4 WHERE id = 1');
-- cursors, loops, functions
SELECT * FROM compare($q$DO $d$ DECLARE c CURSOR FOR SELECT * FROM job ORDER BY id FOR UPDATE; BEGIN
	FOR r IN c LOOP UPDATE job SET qty = 5, tok = 9 WHERE CURRENT OF c; UPDATE job SET qty = 6, tok = 9 WHERE CURRENT OF c; END LOOP; END $d$$q$);
SELECT * FROM compare($q$DO $d$ DECLARE c CURSOR FOR SELECT * FROM job ORDER BY id; BEGIN
	FOR r IN c LOOP UPDATE job SET qty = 5, tok = 6 WHERE CURRENT OF c; END LOOP; END $d$$q$);
SELECT * FROM compare($q$DO $d$ BEGIN FOR i IN 1 .. 20 LOOP UPDATE job SET qty = qty + 1, tok = 9 WHERE id = 1 + i % 3; END LOOP; END $d$$q$);
-- who is no superuser
CREATE ROLE regress_fence_writer;
SELECT fence.grant_writer('regress_fence_writer');
GRANT ALL ON job TO regress_fence_writer;
SELECT * FROM compare('SET LOCAL ROLE regress_fence_writer; UPDATE job SET qty = 2, tok = 9');
SELECT * FROM compare('SET LOCAL ROLE regress_fence_writer; UPDATE job SET qty = 2, tok = 6');
SELECT * FROM compare('SET LOCAL ROLE regress_fence_writer; UPDATE job SET qty = 2');
SELECT * FROM compare('SET LOCAL ROLE regress_fence_writer; SET LOCAL pg_fence.fast_update = on');
-- views, with and without a check
CREATE VIEW few AS SELECT * FROM job WHERE qty < 10 WITH CHECK OPTION;
SELECT * FROM compare('UPDATE few SET qty = 9, tok = 9');
SELECT * FROM compare('UPDATE few SET qty = 10, tok = 9');
SELECT * FROM compare('UPDATE few SET qty = 10, tok = 4');
DROP VIEW few;
-- a row that has no resource
ALTER TABLE job ALTER shelf DROP NOT NULL;
SELECT * FROM compare('SET LOCAL pg_fence.bypass = on; UPDATE job SET shelf = NULL WHERE id = 2; RESET pg_fence.bypass; UPDATE job SET tok = 9');
SELECT * FROM compare($$SET LOCAL pg_fence.bypass = on; UPDATE job SET shelf = repeat('x', 600) WHERE id = 2; RESET pg_fence.bypass; UPDATE job SET tok = 9$$);
ALTER TABLE job ALTER shelf SET NOT NULL;
-- both marks, and a lease: a token is presented as ever
CREATE TABLE dual (id int PRIMARY KEY, shelf text, qty int, tok bigint);
SELECT fence.protect('dual', 'dual:{shelf}', 'tok');
INSERT INTO dual VALUES (1, 'a', 1, 5), (2, 'a', 1, 5), (3, 'b', 1, 5);
SELECT * FROM compare('UPDATE dual SET qty = 2, tok = 6', 'dual');
SELECT * FROM compare($$UPDATE dual SET tok = 6; SELECT fence.check('dual:a', 5)$$, 'dual');
SELECT * FROM compare('UPDATE dual SET qty = 2, tok = 4', 'dual');
SELECT * FROM compare($$SELECT fence.check('dual:a', 5); UPDATE dual SET qty = 2 WHERE shelf = 'a'$$, 'dual');
SELECT * FROM compare($$SELECT fence.check('dual:a', 5); UPDATE dual SET qty = 2$$, 'dual');
SELECT * FROM compare($$SELECT fence.raise_mark('dual:b', 7); UPDATE dual SET qty = 2, tok = 6$$, 'dual');
SELECT fence.protect('dual', 'dual:{shelf}', 'tok', 'row', lease => 'postgres');
SELECT * FROM compare('UPDATE dual SET qty = 2, tok = 5', 'dual');
SELECT * FROM compare($$SELECT fence.acquire('dual:a', 'me'); UPDATE dual SET qty = 2, tok = fence.mark('dual:a') WHERE shelf = 'a'$$, 'dual');

--
-- Triggers beside the guard's
--
CREATE TABLE note (n bigint GENERATED ALWAYS AS IDENTITY, what text);
CREATE FUNCTION remark() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO note (what) VALUES (concat_ws(' ', TG_NAME, TG_WHEN, OLD.tok, NEW.tok)); RETURN NULL; END $$;
CREATE FUNCTION remark_all() RETURNS trigger LANGUAGE plpgsql AS
	$$ BEGIN INSERT INTO note (what) SELECT concat_ws(' ', TG_NAME, o.tok, n.tok) FROM o JOIN n USING (id) ORDER BY id; RETURN NULL; END $$;
CREATE TRIGGER a_row AFTER UPDATE ON job FOR EACH ROW EXECUTE FUNCTION remark();
CREATE TRIGGER a_row_tok AFTER UPDATE OF tok ON job FOR EACH ROW WHEN (NEW.tok > OLD.tok) EXECUTE FUNCTION remark();
CREATE TRIGGER zz_row AFTER UPDATE ON job FOR EACH ROW EXECUTE FUNCTION remark();
CREATE TRIGGER b_statement BEFORE UPDATE ON job FOR EACH STATEMENT EXECUTE FUNCTION remark();
CREATE TRIGGER a_statement AFTER UPDATE ON job FOR EACH STATEMENT EXECUTE FUNCTION remark();
CREATE TRIGGER a_table AFTER UPDATE ON job REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION remark_all();
CREATE CONSTRAINT TRIGGER deferred AFTER UPDATE ON job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remark();
SELECT * FROM compare('UPDATE job SET tok = 8', '(SELECT row_number() OVER (ORDER BY n), what FROM note)');
SELECT * FROM compare('UPDATE job SET tok = 8 WHERE id = 1; SET CONSTRAINTS ALL IMMEDIATE', '(SELECT row_number() OVER (ORDER BY n), what FROM note)');
SELECT * FROM compare($$SELECT fence.check('job:a', 6); UPDATE job SET qty = 8 WHERE id = 1$$,
	'(SELECT row_number() OVER (ORDER BY n), what FROM note)');
DROP TRIGGER a_row ON job;
DROP TRIGGER a_row_tok ON job;
DROP TRIGGER zz_row ON job;
DROP TRIGGER b_statement ON job;
DROP TRIGGER a_statement ON job;
DROP TRIGGER a_table ON job;
DROP TRIGGER deferred ON job;

--
-- The triggers fire
--
-- the row comes to another resource
SELECT * FROM compare($$UPDATE job SET shelf = 'c', tok = 9 WHERE fence.check('job:a', 9) AND id = 1$$);
SELECT * FROM compare($$UPDATE job SET shelf = shelf, tok = 9$$);
SELECT * FROM compare('MERGE INTO job j USING (VALUES (1)) v (id) ON j.id = v.id WHEN MATCHED THEN UPDATE SET tok = 9');
SELECT * FROM compare($$INSERT INTO job VALUES (1, 'a', 1, 9) ON CONFLICT (id) DO UPDATE SET tok = excluded.tok$$);
-- EXPLAIN names them, and tells their calls
CREATE FUNCTION explained(statement text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off, BUFFERS off) ' || statement LOOP
		IF line LIKE '%Trigger%' THEN RETURN NEXT line; END IF;
	END LOOP;
END $$;
SET pg_fence.fast_update = on;
SELECT explained('UPDATE job SET tok = 9');
RESET pg_fence.fast_update;
-- another BEFORE ROW trigger, of any kind
CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER mine BEFORE UPDATE OF qty ON job FOR EACH ROW WHEN (NEW.qty > 50) EXECUTE FUNCTION pass();
SELECT * FROM compare('UPDATE job SET tok = 9');
DROP TRIGGER mine ON job;
-- row security
CREATE POLICY own ON job TO regress_fence_writer USING (true) WITH CHECK (qty < 10);
ALTER TABLE job ENABLE ROW LEVEL SECURITY;
SELECT * FROM compare('SET LOCAL ROLE regress_fence_writer; UPDATE job SET qty = 2, tok = 9');
SELECT * FROM compare('SET LOCAL ROLE regress_fence_writer; UPDATE job SET qty = 10, tok = 9');
SELECT * FROM compare('SET LOCAL ROLE regress_fence_writer; UPDATE job SET qty = 10, tok = 4');
-- not for the owner
SELECT * FROM compare('UPDATE job SET qty = 10, tok = 9');
ALTER TABLE job DISABLE ROW LEVEL SECURITY;
DROP POLICY own ON job;
-- the token is part of a generated column
CREATE TABLE made (id int PRIMARY KEY, tok bigint, twice bigint GENERATED ALWAYS AS (2 * tok) STORED);
SELECT fence.protect('made', 'made', 'tok', 'row');
INSERT INTO made VALUES (1, 5);
SELECT * FROM compare($$SELECT fence.check('made', 6); UPDATE made SET id = 2$$, 'made');
-- idempotency keys, and a guard that only observes
CREATE TABLE keyed (id int PRIMARY KEY, key text, tok bigint);
SELECT fence.protect('keyed', 'keyed', 'tok', 'row', key_column => 'key');
INSERT INTO keyed VALUES (1, 'k1', 5);
SELECT * FROM compare($$UPDATE keyed SET key = 'k2', tok = 6$$, 'keyed');
SELECT * FROM compare($$UPDATE keyed SET key = 'k1', tok = 6$$, 'keyed');
SELECT fence.protect('made', 'made', 'tok', 'row', mode => 'observe');
SET client_min_messages = error;
SELECT * FROM compare('UPDATE made SET tok = 4', 'made');
SET client_min_messages = warning;
-- a trigger that somebody has renamed, or doubled, or put a condition on
BEGIN;
ALTER TRIGGER "~fence_before_row" ON job RENAME TO "~other";
SELECT * FROM compare('UPDATE job SET tok = 9');
SELECT * FROM compare('UPDATE job SET tok = 6');
CREATE TRIGGER "~fence_before_row" BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=x', 'marks=row', 'token_column=tok');
SELECT * FROM compare('UPDATE job SET tok = 9');
SELECT * FROM compare('UPDATE job SET tok = 6');
DROP TRIGGER "~other" ON job;
SELECT * FROM compare('UPDATE job SET tok = 9');
SELECT * FROM compare('UPDATE job SET tok = 6');
DROP TRIGGER "~fence_before_row" ON job;
CREATE TRIGGER "~fence_before_row" BEFORE UPDATE ON job FOR EACH ROW WHEN (OLD.id < 3) EXECUTE FUNCTION fence.guard('resource=x', 'marks=row', 'token_column=tok');
SELECT * FROM compare('UPDATE job SET tok = 9');
SELECT * FROM compare('UPDATE job SET tok = 6 WHERE id = 3');
ROLLBACK;
-- arguments that cannot be read
BEGIN;
DROP TRIGGER "~fence_before_row" ON job;
CREATE TRIGGER "~fence_before_row" BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION fence.guard('nonsense=x');
SELECT * FROM compare('UPDATE job SET tok = 9');
SELECT * FROM compare('UPDATE job SET tok = 9 WHERE false');
ROLLBACK;
-- a column that has gone
BEGIN;
ALTER TABLE job RENAME shelf TO place;
SELECT * FROM compare('UPDATE job SET tok = 9');
SELECT * FROM compare('UPDATE job SET tok = 9 WHERE false');
ROLLBACK;

--
-- A prepared statement, while the triggers change
--
PREPARE write (bigint) AS UPDATE job SET qty = 2, tok = $1;
SELECT * FROM compare('EXECUTE write (9)');
SELECT * FROM compare('EXECUTE write (6)');
CREATE TRIGGER mine BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION pass();
SELECT * FROM compare('EXECUTE write (9)');
ALTER TABLE job DISABLE TRIGGER mine;
SELECT * FROM compare('EXECUTE write (6)');
DROP TRIGGER mine ON job;
SELECT * FROM compare('EXECUTE write (9)');
ALTER TABLE job DISABLE TRIGGER "~fence_before_row";
SELECT * FROM compare('EXECUTE write (9)');
SELECT * FROM compare('EXECUTE write (6)');
ALTER TABLE job DISABLE TRIGGER USER;
SELECT * FROM compare('EXECUTE write (6)');
ALTER TABLE job ENABLE TRIGGER USER;
SELECT * FROM compare('EXECUTE write (6)');
SELECT * FROM compare('SET LOCAL session_replication_role = replica; EXECUTE write (6)');
ALTER TABLE job ENABLE ALWAYS TRIGGER "~fence_before_row";
ALTER TABLE job ENABLE ALWAYS TRIGGER "~fence_after_write";
SELECT * FROM compare('SET LOCAL session_replication_role = replica; EXECUTE write (6)');
SELECT * FROM compare('SET LOCAL session_replication_role = replica; EXECUTE write (9)');
ALTER TABLE job ENABLE REPLICA TRIGGER "~fence_before_row";
SELECT * FROM compare('EXECUTE write (9)');
ALTER TABLE job ENABLE TRIGGER USER;
SELECT fence.unprotect('job');
SELECT * FROM compare('EXECUTE write (6)');
SELECT fence.protect('job', 'job:{id}', 'tok', 'row');
SELECT * FROM compare('EXECUTE write (6)');
SELECT * FROM compare('EXECUTE write (9)');
ALTER TABLE job RENAME tok TO token;
SELECT * FROM compare('UPDATE job SET token = 9');
ALTER TABLE job RENAME token TO tok;
SELECT fence.protect('job', 'job:{shelf}', 'tok', 'row');
SELECT * FROM compare('EXECUTE write (9)');
-- the function itself
ALTER FUNCTION fence.guard() SET work_mem = '4MB';
SELECT * FROM compare('EXECUTE write (9)');
ALTER FUNCTION fence.guard() RESET work_mem;
SELECT * FROM compare('EXECUTE write (9)');

--
-- The bypass, and a bypass that begins or ends within the statement
--
CREATE FUNCTION bypass(t text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('pg_fence.bypass', t, true); RETURN 3; END $$;
SELECT * FROM compare('SET LOCAL pg_fence.bypass = on; UPDATE job SET tok = 1');
SELECT * FROM compare($$UPDATE job SET tok = 1, qty = bypass('on'); RESET pg_fence.bypass$$);
SELECT * FROM compare($$UPDATE job SET tok = 9, qty = bypass(CASE id WHEN 2 THEN 'on' ELSE 'off' END)$$);
SELECT * FROM compare($$UPDATE job SET tok = CASE id WHEN 2 THEN 4 ELSE 9 END, qty = bypass(CASE id WHEN 2 THEN 'on' ELSE 'off' END)$$);

--
-- Partitions
--
CREATE TABLE area (id int, region text, shelf int, qty int, tok bigint) PARTITION BY LIST (region);
CREATE TABLE area_a PARTITION OF area FOR VALUES IN ('a');
CREATE TABLE area_b PARTITION OF area FOR VALUES IN ('b') PARTITION BY RANGE (id);
CREATE TABLE area_b1 PARTITION OF area_b FOR VALUES FROM (0) TO (10);
CREATE TABLE area_b2 (tok bigint, gone int, qty int, shelf int, region text, id int);
ALTER TABLE area_b2 DROP gone;
ALTER TABLE area_b ATTACH PARTITION area_b2 FOR VALUES FROM (10) TO (20);
SELECT fence.protect('area', 'area:{shelf}', 'tok', 'row');
INSERT INTO area VALUES (1, 'a', 1, 1, 5), (2, 'b', 1, 1, 5), (12, 'b', 1, 1, 5);
PREPARE write_area (bigint) AS UPDATE area SET qty = 2, tok = $1;
SELECT * FROM compare('EXECUTE write_area (9)', 'area');
SELECT * FROM compare('EXECUTE write_area (4)', 'area');
SELECT * FROM compare($$SELECT fence.check('area:1', 9); UPDATE area SET qty = 2$$, 'area');
SELECT * FROM compare('UPDATE area_b SET qty = 2, tok = 9', 'area');
SELECT * FROM compare('UPDATE area_b2 SET qty = 2, tok = 9', 'area');
SELECT * FROM compare('UPDATE area_b2 SET qty = 2, tok = 4', 'area');
CREATE TABLE area_c (LIKE area);
ALTER TABLE area ATTACH PARTITION area_c FOR VALUES IN ('c');
INSERT INTO area VALUES (3, 'c', 2, 1, 5);
SELECT * FROM compare('EXECUTE write_area (9)', 'area');
SELECT * FROM compare('EXECUTE write_area (4)', 'area');
-- rows that move, or would, are the triggers'
SELECT * FROM compare($$SELECT fence.check('area:1', 9); UPDATE area SET region = 'a', tok = 9 WHERE id < 3$$, 'area');
SELECT * FROM compare($$SELECT fence.check('area:1', 9); UPDATE area SET region = 'b', tok = 4 WHERE id < 3$$, 'area');
SELECT * FROM compare($$SELECT fence.check('area:1', 9); UPDATE area_b SET region = 'a', tok = 9$$, 'area');
SELECT * FROM compare($$UPDATE area_b SET region = 'a', tok = 9$$, 'area');
SELECT * FROM compare($$UPDATE area_b1 SET id = 12, tok = 9$$, 'area');
SELECT * FROM compare($$UPDATE area_b1 SET id = 12, tok = 4$$, 'area');
SELECT * FROM compare($$SELECT fence.check('area:1', 9); UPDATE area_b SET id = id % 10, tok = 9$$, 'area');
-- a trigger of one partition moves a row to another one
CREATE FUNCTION to_b() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.region := 'b'; RETURN NEW; END $$;
CREATE TRIGGER move BEFORE UPDATE ON area_a FOR EACH ROW EXECUTE FUNCTION to_b();
SELECT * FROM compare('EXECUTE write_area (9)', 'area');
SELECT * FROM compare($$SELECT fence.check('area:1', 9); EXECUTE write_area (9)$$, 'area');
SELECT * FROM compare($$SELECT fence.check('area:1', 9); EXECUTE write_area (4)$$, 'area');
DROP TRIGGER move ON area_a;
-- the stamped token moves it
CREATE TABLE era (id int, tok bigint) PARTITION BY RANGE (tok);
CREATE TABLE era_1 PARTITION OF era FOR VALUES FROM (1) TO (10);
CREATE TABLE era_2 PARTITION OF era FOR VALUES FROM (10) TO (20);
SELECT fence.protect('era', 'era', 'tok', 'row');
INSERT INTO era VALUES (1, 5);
SELECT * FROM compare($$SELECT fence.check('era', 6); UPDATE era SET id = 2$$, '(SELECT tableoid::regclass, era.* FROM era)');
SELECT * FROM compare($$SELECT fence.check('era', 12); UPDATE era SET id = 2$$, '(SELECT tableoid::regclass, era.* FROM era)');
SELECT * FROM compare($$SELECT fence.check('era', 12); UPDATE era_1 SET id = 2$$, '(SELECT tableoid::regclass, era.* FROM era)');
SELECT * FROM compare($$SELECT fence.check('era', 30); UPDATE era SET id = 2$$, '(SELECT tableoid::regclass, era.* FROM era)');

-- a child of a table that is not guarded itself
CREATE TABLE base (id int, shelf int, qty int, tok bigint);
CREATE TABLE kid (tok bigint, more text) INHERITS (base);
SELECT fence.protect('kid', 'base:{shelf}', 'tok', 'row');
INSERT INTO base VALUES (1, 1, 1, 5);
INSERT INTO kid (id, shelf, qty, tok) VALUES (2, 1, 1, 7);
SELECT * FROM compare('UPDATE base SET qty = 2, tok = 9', 'base');
SELECT * FROM compare('UPDATE base SET qty = 2, tok = 6', 'base');
SELECT * FROM compare($$SELECT fence.check('base:1', 8); UPDATE base SET qty = 2$$, 'base');

--
-- Foreign keys that reach into the table
--
CREATE TABLE boss (id int PRIMARY KEY);
CREATE TABLE hand (id int PRIMARY KEY, boss int REFERENCES boss ON UPDATE CASCADE ON DELETE SET NULL, head int REFERENCES hand ON UPDATE CASCADE, tok bigint);
SELECT fence.protect('hand', 'hand', 'tok', 'row');
INSERT INTO boss VALUES (1), (2);
INSERT INTO hand VALUES (1, 1, NULL, 5), (2, 2, 1, 5);
SELECT * FROM compare('UPDATE boss SET id = 3 WHERE id = 1', 'hand');
SELECT * FROM compare($$SELECT fence.check('hand', 6); UPDATE boss SET id = 3 WHERE id = 1; DELETE FROM boss WHERE id = 2$$, 'hand');
SELECT * FROM compare($$SELECT fence.check('hand', 4); UPDATE boss SET id = 3 WHERE id = 1$$, 'hand');
-- the table's own: its update makes another one, in the same query
SELECT * FROM compare($$SELECT fence.check('hand', 6); UPDATE hand SET id = 9, tok = 6 WHERE id = 1$$, 'hand');
SELECT * FROM compare($$UPDATE hand SET id = 9, tok = 6 WHERE id = 1$$, 'hand');
-- ... whose triggers fire, those after the row in the query of the first one
SET pg_fence.bypass = on;
UPDATE hand SET head = 2 WHERE id = 1;
RESET pg_fence.bypass;
SELECT fence.protect('hand', 'hand:{head}', 'tok', 'row');
SELECT * FROM compare($$SELECT fence.check('hand:1', 6), fence.check('hand:9', 6); UPDATE hand SET id = 9, tok = 6 WHERE id = 1$$, 'hand');

--
-- Without a token column: AFTER ROW is not fired for rows that it would let pass
--
CREATE TABLE bare (id int PRIMARY KEY, shelf text, qty int CHECK (qty < 100));
SELECT fence.protect('bare', 'bare:{shelf}');
SET pg_fence.bypass = on;
INSERT INTO bare VALUES (1, 'a', 1), (2, 'a', 1), (3, 'b', 1);
RESET pg_fence.bypass;
SELECT * FROM compare('UPDATE bare SET qty = 2', 'bare');
SELECT * FROM compare('UPDATE bare SET qty = 2 WHERE false', 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2 WHERE shelf = 'a'$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:b', 5); UPDATE bare SET qty = 2$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5), fence.check('bare:b', 5); UPDATE bare SET qty = 2$$, 'bare');
SELECT * FROM compare($$UPDATE bare SET qty = 2 WHERE fence.check('bare:' || shelf, 5)$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 100 WHERE shelf = 'a'$$, 'bare');
SELECT * FROM compare($$UPDATE bare SET qty = 100 WHERE shelf = 'a'$$, 'bare');
-- presented too late for the first row, in time for its trigger
SELECT * FROM compare($$UPDATE bare SET qty = 2 RETURNING fence.check('bare:' || shelf, 5)$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2 RETURNING fence.check('bare:' || shelf, 5)$$, 'bare');
-- and taken back: in a part of the statement, and before it
CREATE FUNCTION presents(name text, keep boolean) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fence.check(name, 5);
	IF NOT keep THEN RAISE SQLSTATE 'UNDO0'; END IF;
	RETURN 3;
EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
	RETURN 4;
END $$;
SELECT * FROM compare($$UPDATE bare SET qty = presents('bare:' || shelf, true)$$, 'bare');
SELECT * FROM compare($$UPDATE bare SET qty = presents('bare:' || shelf, false)$$, 'bare');
SELECT * FROM compare($$UPDATE bare SET qty = presents('bare:' || shelf, id = 1) WHERE shelf = 'a'$$, 'bare');
SELECT * FROM compare($$UPDATE bare SET qty = presents('bare:' || shelf, id = 2) WHERE shelf = 'a'$$, 'bare');
SELECT * FROM compare($q$SELECT presents('bare:a', false); UPDATE bare SET qty = 2 WHERE shelf = 'a'$q$, 'bare');
SELECT * FROM compare($q$DO $d$ BEGIN PERFORM fence.check('bare:a', 5);
	BEGIN UPDATE bare SET qty = 2; EXCEPTION WHEN SQLSTATE 'PF002' THEN UPDATE bare SET qty = 7 WHERE id = 2; END; END $d$$q$, 'bare');
-- the resource changes: both of them are asked about
SELECT * FROM compare($$SELECT fence.check('bare:a', 5), fence.check('bare:b', 5); UPDATE bare SET shelf = CASE shelf WHEN 'a' THEN 'b' ELSE 'a' END$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET shelf = 'b' WHERE id = 1$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:b', 5); UPDATE bare SET shelf = 'b' WHERE id = 1$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET shelf = shelf WHERE id = 1$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET shelf = NULL WHERE id = 1$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET shelf = repeat('x', 600) WHERE id = 1$$, 'bare');
-- hit twice, changed by a function, by parts of the statement, under a cursor
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = v.q FROM (VALUES (2), (100)) v (q) WHERE id = 1$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = v.q, shelf = v.s FROM (VALUES (2, 'a'), (3, 'z')) v (q, s) WHERE id = 1$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); WITH u AS (UPDATE bare SET qty = 2 WHERE id = 1), i AS (INSERT INTO bare VALUES (4, 'a', 1)) UPDATE bare SET qty = 3 WHERE id = 2$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); WITH u AS (UPDATE bare SET qty = 2 WHERE id = 3) UPDATE bare SET qty = 3 WHERE id = 2$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); WITH d AS (DELETE FROM bare WHERE id = 3) UPDATE bare SET qty = 3 WHERE id = 2$$, 'bare');
SELECT * FROM compare($q$DO $d$ DECLARE c CURSOR FOR SELECT * FROM bare ORDER BY id FOR UPDATE; BEGIN
	FOR r IN c LOOP PERFORM fence.check('bare:' || r.shelf, 5); UPDATE bare SET qty = 5 WHERE CURRENT OF c; END LOOP; END $d$$q$, 'bare');
-- who is no superuser, with a check of a view, with row security
GRANT ALL ON bare TO regress_fence_writer;
SELECT * FROM compare($$SET LOCAL ROLE regress_fence_writer; SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2 WHERE shelf = 'a'$$, 'bare');
CREATE VIEW few AS SELECT * FROM bare WHERE qty < 10 WITH CHECK OPTION;
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE few SET qty = 9 WHERE shelf = 'a'$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE few SET qty = 10 WHERE shelf = 'a'$$, 'bare');
SELECT * FROM compare('UPDATE few SET qty = 10', 'bare');
DROP VIEW few;
CREATE POLICY own ON bare TO regress_fence_writer USING (true) WITH CHECK (qty < 10);
ALTER TABLE bare ENABLE ROW LEVEL SECURITY;
SELECT * FROM compare($$SET LOCAL ROLE regress_fence_writer; SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2 WHERE shelf = 'a'$$, 'bare');
SELECT * FROM compare($$SET LOCAL ROLE regress_fence_writer; SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 10 WHERE shelf = 'a'$$, 'bare');
ALTER TABLE bare DISABLE ROW LEVEL SECURITY;
DROP POLICY own ON bare;
-- a lease is asked for as ever
SELECT fence.protect('bare', 'bare:{shelf}', lease => 'postgres');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2 WHERE shelf = 'a'$$, 'bare');
SELECT * FROM compare($$SELECT fence.acquire('bare:a', 'me'); SELECT fence.check('bare:a', fence.mark('bare:a')); UPDATE bare SET qty = 2 WHERE shelf = 'a'$$, 'bare');
SELECT * FROM compare($$SELECT fence.acquire('bare:a', 'me'); SELECT fence.check('bare:a', fence.mark('bare:a')); SELECT fence.release('bare:a', fence.mark('bare:a')); UPDATE bare SET qty = 2 WHERE shelf = 'a'$$, 'bare');
SELECT fence.protect('bare', 'bare:{shelf}');
-- the bypass
SELECT * FROM compare('SET LOCAL pg_fence.bypass = on; UPDATE bare SET qty = 2', 'bare');
SELECT * FROM compare($$UPDATE bare SET qty = bypass('on')$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5), fence.check('bare:b', 5); UPDATE bare SET qty = bypass(CASE id WHEN 2 THEN 'on' ELSE 'off' END)$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:b', 5); UPDATE bare SET qty = bypass(CASE id WHEN 3 THEN 'off' ELSE 'on' END)$$, 'bare');
-- other triggers that fire after the row go on, one of them presents a token
CREATE FUNCTION remark_id() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO note (what) VALUES (concat_ws(' ', TG_NAME, OLD.id, OLD.qty, NEW.qty)); RETURN NULL; END $$;
CREATE FUNCTION present_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM fence.check('bare:' || NEW.shelf, 5); RETURN NULL; END $$;
CREATE TRIGGER a_row AFTER UPDATE ON bare FOR EACH ROW EXECUTE FUNCTION remark_id();
CREATE CONSTRAINT TRIGGER deferred AFTER UPDATE ON bare DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remark_id();
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2 WHERE shelf = 'a'$$, '(SELECT row_number() OVER (ORDER BY n), what FROM note)');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2; $$, '(SELECT row_number() OVER (ORDER BY n), what FROM note)');
CREATE TRIGGER a_row_2 AFTER UPDATE ON bare FOR EACH ROW EXECUTE FUNCTION present_it();
SELECT * FROM compare($$UPDATE bare SET qty = 2$$, '(SELECT row_number() OVER (ORDER BY n), what FROM note)');
DROP TRIGGER deferred ON bare;
DROP TRIGGER a_row ON bare;
DROP TRIGGER a_row_2 ON bare;
-- the trigger fires
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); MERGE INTO bare b USING (VALUES (1)) v (id) ON b.id = v.id WHEN MATCHED THEN UPDATE SET qty = 9$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); INSERT INTO bare VALUES (1, 'a', 1) ON CONFLICT (id) DO UPDATE SET qty = 9$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); DELETE FROM bare WHERE shelf = 'a'$$, 'bare');
CREATE TRIGGER mine BEFORE UPDATE ON bare FOR EACH ROW EXECUTE FUNCTION pass();
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2 WHERE shelf = 'a'$$, 'bare');
DROP TRIGGER mine ON bare;
SET pg_fence.fast_update = on;
SELECT explained($$UPDATE bare SET qty = 2 WHERE fence.check('bare:' || shelf, 5)$$);
RESET pg_fence.fast_update;
-- a guard that only observes, one that was made by hand, one that is disabled
SET client_min_messages = error;
SELECT fence.protect('bare', 'bare:{shelf}', mode => 'observe');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); UPDATE bare SET qty = 2$$, 'bare');
SELECT fence.protect('bare', 'bare:{shelf}');
SET client_min_messages = warning;
PREPARE write_bare AS UPDATE bare SET qty = 2 WHERE shelf = 'a';
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); EXECUTE write_bare$$, 'bare');
SELECT * FROM compare('SET LOCAL session_replication_role = replica; EXECUTE write_bare', 'bare');
ALTER TABLE bare ENABLE REPLICA TRIGGER "~fence_after_row";
SELECT * FROM compare('EXECUTE write_bare', 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); SET LOCAL session_replication_role = replica; EXECUTE write_bare$$, 'bare');
SELECT * FROM compare($$SET LOCAL session_replication_role = replica; EXECUTE write_bare$$, 'bare');
ALTER TABLE bare DISABLE TRIGGER USER;
SELECT * FROM compare('EXECUTE write_bare', 'bare');
ALTER TABLE bare ENABLE TRIGGER USER;
SELECT * FROM compare('EXECUTE write_bare', 'bare');
CREATE TRIGGER again AFTER UPDATE ON bare FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=other');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); EXECUTE write_bare$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5), fence.check('other', 5); EXECUTE write_bare$$, 'bare');
DROP TRIGGER again ON bare;
DROP TRIGGER "~fence_after_row" ON bare;
SELECT * FROM compare('EXECUTE write_bare', 'bare');
CREATE TRIGGER "~fence_after_row" AFTER UPDATE ON bare FOR EACH ROW WHEN (OLD.id > 1) EXECUTE FUNCTION fence.guard('resource=bare:{shelf}');
SELECT * FROM compare('UPDATE bare SET qty = 2 WHERE id = 1', 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); EXECUTE write_bare$$, 'bare');
CREATE OR REPLACE TRIGGER "~fence_after_row" AFTER UPDATE OF shelf ON bare FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=bare:{shelf}');
SELECT * FROM compare($$UPDATE bare SET qty = 2$$, 'bare');
CREATE OR REPLACE TRIGGER "~fence_after_row" AFTER UPDATE ON bare FOR EACH ROW EXECUTE FUNCTION fence.guard('nonsense=x');
SELECT * FROM compare('EXECUTE write_bare', 'bare');
CREATE OR REPLACE TRIGGER "~fence_after_row" AFTER UPDATE ON bare FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=bare:{nope}');
SELECT * FROM compare('EXECUTE write_bare', 'bare');
DROP TRIGGER "~fence_after_row" ON bare;
CREATE CONSTRAINT TRIGGER "~fence_after_row" AFTER UPDATE ON bare DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=bare:{shelf}');
SELECT * FROM compare($$EXECUTE write_bare; SELECT fence.check('bare:a', 5)$$, 'bare');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); EXECUTE write_bare$$, 'bare');
DROP TRIGGER "~fence_after_row" ON bare;
-- a kind that cannot guard its policy says so itself
CREATE TRIGGER "~fence_before_row" BEFORE UPDATE ON bare FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=bare:{shelf}');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); EXECUTE write_bare$$, 'bare');
DROP TRIGGER "~fence_before_row" ON bare;
ALTER TABLE bare ADD tok bigint;
CREATE TRIGGER "~fence_after_row" AFTER UPDATE ON bare FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=bare:{shelf}', 'marks=both', 'token_column=tok');
SELECT * FROM compare($$SELECT fence.check('bare:a', 5); EXECUTE write_bare$$, 'bare');
-- partitions, a row that moves, and a column that the database computes
CREATE TABLE zone (id int, region text, shelf int, qty int) PARTITION BY LIST (region);
CREATE TABLE zone_a PARTITION OF zone FOR VALUES IN ('a');
CREATE TABLE zone_b (qty int, shelf int, region text, id int);
ALTER TABLE zone ATTACH PARTITION zone_b FOR VALUES IN ('b');
SELECT fence.protect('zone', 'zone:{shelf}');
SET pg_fence.bypass = on;
INSERT INTO zone VALUES (1, 'a', 1, 1), (2, 'b', 1, 1), (3, 'b', 2, 1);
RESET pg_fence.bypass;
SELECT * FROM compare($$SELECT fence.check('zone:1', 5); UPDATE zone SET qty = 2 WHERE shelf = 1$$, 'zone');
SELECT * FROM compare($$SELECT fence.check('zone:1', 5); UPDATE zone SET qty = 2$$, 'zone');
SELECT * FROM compare($$SELECT fence.check('zone:1', 5); UPDATE zone_b SET qty = 2 WHERE shelf = 1$$, 'zone');
SELECT * FROM compare($$SELECT fence.check('zone:1', 5); UPDATE zone SET region = 'a' WHERE shelf = 1$$, 'zone');
SELECT * FROM compare($$SELECT fence.check('zone:1', 5); UPDATE zone SET region = 'a'$$, 'zone');
SELECT * FROM compare($$UPDATE zone SET region = 'b' WHERE id = 1$$, 'zone');
CREATE TABLE built (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (2 * id) STORED, qty int);
SELECT fence.protect('built', 'built:{twice}');
SET pg_fence.bypass = on;
INSERT INTO built VALUES (1, DEFAULT, 1);
RESET pg_fence.bypass;
SELECT * FROM compare($$SELECT fence.check('built:2', 5); UPDATE built SET qty = 2$$, 'built');
SELECT * FROM compare($$SELECT fence.check('built:2', 5); UPDATE built SET id = 2$$, 'built');
-- a plain name has a row trigger where a foreign key reaches the table
CREATE TABLE chief (id int PRIMARY KEY);
CREATE TABLE arm (id int PRIMARY KEY, chief int REFERENCES chief ON UPDATE CASCADE);
SELECT fence.protect('arm', 'arm');
INSERT INTO chief VALUES (1), (2);
SET pg_fence.bypass = on;
INSERT INTO arm VALUES (1, 1), (2, 2);
RESET pg_fence.bypass;
SELECT * FROM compare('UPDATE chief SET id = 3 WHERE id = 1', 'arm');
SELECT * FROM compare($$SELECT fence.check('arm', 5); UPDATE chief SET id = 3 WHERE id = 1$$, 'arm');
SELECT * FROM compare($$UPDATE chief SET id = 3 WHERE id = 1 RETURNING fence.check('arm', 5)$$, 'arm');
SELECT * FROM compare($$SELECT fence.check('arm', 5); UPDATE arm SET id = id + 5$$, 'arm');

--
-- A new session: the first write on a table, after the library has been loaded
--
\c -
SET client_min_messages = warning;
SET track_functions = 'all';
SET pg_fence.fast_update = on;
SELECT fence.mark('job:a');
BEGIN;
UPDATE job SET qty = 2, tok = 9;
SELECT coalesce(pg_stat_get_xact_function_calls('fence.guard'::regproc), 0) AS calls;
ROLLBACK;

DROP TABLE job, dual, note, made, keyed, area, era, base, kid, hand, boss, bare, zone, built, arm, chief;
DROP FUNCTION attempt, compare, touch, remark, remark_all, remark_id, present_it, presents, explained, pass, bypass, to_b;
SELECT fence.grant_writer('regress_fence_writer');
DROP OWNED BY regress_fence_writer;
DROP ROLE regress_fence_writer;
DELETE FROM fence.resource WHERE name ~ '^(job|dual|made|keyed|area|era|base|hand|bare|other|zone|built|arm)(:|$)';
