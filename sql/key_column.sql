-- Key columns: what fence.protect() accepts, which values are keys, what a
-- duplicate does, and where the policy goes.  (How rows get written is in the
-- file key_writes.)
--
-- Field cases: E06; the numbers I.. are those of the list of edge cases of
-- issue 5.
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET default_transaction_isolation = 'read committed';

CREATE TABLE pay (id int PRIMARY KEY, amount int, op text);
-- arguments
SELECT call, refusal(format('SELECT fence.protect(''pay'', ''pay'', %s)', call))
FROM unnest(ARRAY['key_column => ''nope''', 'key_column => ''OP''', 'key_column => ''''', 'key_column => ''ctid''', 'on_duplicate => ''skip''',
	'on_duplicate => ''error''', 'on_duplicate => NULL', 'on_duplicate => ''''', 'key_column => ''op'', on_duplicate => ''ignore''',
	'key_column => ''op'', on_duplicate => NULL', 'key_column => ''id'', token_column => ''id''', 'key_column => NULL', 'key_column => ''op''',
	'key_column => ''op'', on_duplicate => ''error''', 'key_column => ''op'', on_duplicate => ''skip''']) call;
SELECT fence.protect('pay', 'pay', key_column => 'op');
SELECT resource, token_column, marks, mode, enabled, key_column, key_scope, on_duplicate FROM fence.protected_tables WHERE target = 'pay'::regclass;
SELECT tgname, tgtype, fence.trigger_arguments(tgargs) FROM pg_trigger WHERE tgrelid = 'pay'::regclass ORDER BY tgname;
-- a generated column has no value in time
CREATE TABLE generated (id int, g int GENERATED ALWAYS AS (id * 2) STORED);
SELECT refusal($$SELECT fence.protect('generated', 'pay', key_column => 'g')$$, '"g"', '"generated"');
DROP TABLE generated;

-- for the rest, the token is there
SELECT acquired, token FROM fence.acquire('pay', 'a', '1 day');
CREATE FUNCTION run(command text, token bigint DEFAULT 1) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
	state text;
BEGIN
	PERFORM fence.check('pay', token);
	EXECUTE command;
	GET DIAGNOSTICS n = ROW_COUNT;
	RETURN n;
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE;
	RETURN state;
END
$$;

-- the token is demanded all the same, and a duplicate needs none to be one
INSERT INTO pay VALUES (1, 10, 'a');
SELECT run($$INSERT INTO pay VALUES (1, 10, 'a')$$);
SELECT refusal($$INSERT INTO pay VALUES (2, 10, 'a')$$, '"a"', '"op"', '"pay"', 'claimed at');
SELECT refusal($$INSERT INTO pay VALUES (2, 10, 'b')$$);
SELECT scope, key, response_size FROM fence.keys WHERE scope = 'public.pay';
-- the error has its table and column
DO $$
DECLARE
	s text;
	t text;
	c text;
BEGIN
	INSERT INTO pay VALUES (2, 10, 'a');
EXCEPTION WHEN SQLSTATE 'PF102' THEN
	GET STACKED DIAGNOSTICS s = SCHEMA_NAME, t = TABLE_NAME, c = COLUMN_NAME;
	ASSERT (s, t, c) = ('public', 'pay', 'op');
END
$$;

-- E06, I41: no key is no way around it
SELECT k, run(format('INSERT INTO pay VALUES (2, 10, %L)', k)) FROM unnest(ARRAY[NULL, '', ' ', E'\t']) k;
SELECT run('INSERT INTO pay VALUES (2, 10)'), run('UPDATE pay SET op = NULL'), run('UPDATE pay SET op = '''''), run('UPDATE pay SET amount = 11, op = DEFAULT');
SELECT run(format('INSERT INTO pay VALUES (2, 10, %L)', repeat('x', 256))), run(format('INSERT INTO pay VALUES (2, 10, %L)', repeat('x', 255)));
SELECT refusal($$INSERT INTO pay VALUES (3, 10)$$, '"op"', '"pay"', 'null'), refusal($$INSERT INTO pay VALUES (3, 10, ' ')$$, '"op"', '"pay"', 'blank');

-- an UPDATE that does not set the column has nothing to do with keys
SELECT run('UPDATE pay SET amount = 12 WHERE id = 1'), run('UPDATE pay SET amount = 13 WHERE id = 1');
SELECT run('DELETE FROM pay WHERE id = 2');
-- one that sets it is an operation, also with the value that is there
SELECT run($$UPDATE pay SET amount = amount + 1, op = 'c' WHERE id = 1$$), run($$UPDATE pay SET amount = amount + 1, op = 'c' WHERE id = 1$$);
SELECT run('UPDATE pay SET amount = amount + 1, op = op WHERE id = 1');
TABLE pay;

-- on_duplicate => 'skip': the row is left alone
SELECT fence.protect('pay', 'pay', key_column => 'op', on_duplicate => 'skip');
SELECT run($$INSERT INTO pay VALUES (2, 20, 'a')$$), run($$INSERT INTO pay VALUES (2, 20, 'd')$$), run($$INSERT INTO pay VALUES (3, 20, 'd')$$);
SELECT run($$UPDATE pay SET amount = 0, op = 'c'$$), run($$UPDATE pay SET amount = 0, op = 'd' WHERE id = 2$$), run($$UPDATE pay SET amount = amount + 1, op = 'e'$$);
SELECT run($$INSERT INTO pay VALUES (4, 20, 'a'), (5, 20, 'f'), (6, 20, 'f'), (7, 20, 'e')$$);
-- no key is still none
SELECT run('INSERT INTO pay VALUES (8, 20)'), run('INSERT INTO pay VALUES (8, 20, '''')');
-- what is skipped needs no token: it is done already
INSERT INTO pay VALUES (9, 20, 'a');
UPDATE pay SET amount = 0, op = 'a';
INSERT INTO pay VALUES (9, 20, 'g');
SELECT * FROM pay ORDER BY id;

-- mode => 'observe': a warning, and the row is written
SELECT fence.protect('pay', 'pay', mode => 'observe', key_column => 'op', on_duplicate => 'skip');
INSERT INTO pay VALUES (9, 30, 'a');
INSERT INTO pay VALUES (10, 30, NULL);
BEGIN;
SELECT fence.check('pay', 1);
INSERT INTO pay VALUES (11, 30, 'a'), (12, 30, 'a'), (13, 30, NULL);
INSERT INTO pay VALUES (14, 30, 'h');
COMMIT;
-- the same with keys that fence.claim() has used with a request, or not completed yet
SELECT fresh FROM fence.claim('i', 'public.pay', '{"amount": 30}') c, fence.complete('i', scope => 'public.pay') WHERE c.fresh;
BEGIN;
SELECT fence.check('pay', 1);
INSERT INTO pay VALUES (15, 30, 'i');
UPDATE pay SET amount = 31, op = 'i' WHERE id = 15;
SELECT fresh FROM fence.claim('j', 'public.pay');
INSERT INTO pay VALUES (16, 30, 'j');
SELECT fence.complete('j', scope => 'public.pay');
COMMIT;
SELECT * FROM pay WHERE id > 8 ORDER BY id;
SELECT key FROM fence.keys WHERE scope = 'public.pay' AND key BETWEEN 'h' AND 'j' ORDER BY key;
-- a guard that enforces says where
SELECT fence.protect('pay', 'pay', key_column => 'op', on_duplicate => 'skip');
DO $$
DECLARE
	t text;
	c text;
BEGIN
	PERFORM fence.check('pay', 1);
	INSERT INTO pay VALUES (17, 30, 'i');
EXCEPTION WHEN SQLSTATE 'PF101' THEN
	GET STACKED DIAGNOSTICS t = TABLE_NAME, c = COLUMN_NAME;
	ASSERT (t, c) = ('pay', 'op');
	RAISE WARNING 'another request';
END
$$;
BEGIN;
SELECT fence.check('pay', 1), fresh FROM fence.claim('k', 'public.pay');
INSERT INTO pay VALUES (17, 30, 'k');
ROLLBACK;

-- The scope is the name that the table had at first: neither a rename, nor
-- another policy, nor another schema makes it forget its keys.
SELECT fence.protect('pay', 'pay', key_column => 'op');
ALTER TABLE pay RENAME TO payment;
SELECT run($$INSERT INTO payment VALUES (20, 1, 'a')$$);
CREATE SCHEMA "key Schema";
ALTER TABLE payment SET SCHEMA "key Schema";
SELECT run($$INSERT INTO "key Schema".payment VALUES (20, 1, 'a')$$);
SELECT fence.protect('"key Schema".payment', 'pay-{id}', key_column => 'op', on_duplicate => 'skip');
SELECT resource, key_scope, on_duplicate FROM fence.protected_tables WHERE target = '"key Schema".payment'::regclass;
SELECT run($$INSERT INTO "key Schema".payment VALUES (20, 1, 'a')$$);
-- without a guard it does, and another column is another matter
SELECT fence.unprotect('"key Schema".payment');
SELECT fence.protect('"key Schema".payment', 'pay', key_column => 'op');
SELECT key_scope FROM fence.protected_tables WHERE target = '"key Schema".payment'::regclass;
DROP TABLE "key Schema".payment;
DROP SCHEMA "key Schema";
-- a new table of the old name takes over
CREATE TABLE pay (id int, op text);
SELECT fence.protect('pay', 'pay', key_column => 'op');
SELECT run($$INSERT INTO pay VALUES (1, 'a')$$), run($$INSERT INTO pay VALUES (1, 'z')$$);

-- I47: columns that are renamed, dropped, retyped
ALTER TABLE pay RENAME op TO operation;
SELECT run($$INSERT INTO pay VALUES (1, 'y')$$), run('UPDATE pay SET id = 2');
SELECT severity, problem FROM fence.audit() WHERE target = 'pay'::regclass AND severity = 'error';
SELECT fence.protect('pay', 'pay', key_column => 'operation');
SELECT run($$INSERT INTO pay VALUES (1, 'z')$$), run($$INSERT INTO pay VALUES (1, 'y')$$);
ALTER TABLE pay ALTER operation TYPE varchar(100);
SELECT run($$INSERT INTO pay VALUES (1, 'y')$$), run($$INSERT INTO pay VALUES (1, 'x')$$);
ALTER TABLE pay DROP operation;
SELECT run($$INSERT INTO pay VALUES (1)$$), run('UPDATE pay SET id = 2');
SELECT fence.protect('pay', 'pay');
SELECT run($$INSERT INTO pay VALUES (1)$$);
SELECT key_column, key_scope, on_duplicate FROM fence.protected_tables WHERE target = 'pay'::regclass;
DROP TABLE pay;

-- types: the same text, whatever the session's settings
CREATE TABLE typed (u uuid, b bigint, c char(8), t timestamptz, d date, y bytea, n numeric, e boolean, j jsonb, a int[]);
CREATE FUNCTION typed_run(name name, value text) RETURNS text LANGUAGE sql AS $$
	SELECT run(format('INSERT INTO typed (%I) VALUES (%L)', name, value))
$$;
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET bytea_output = 'hex';
CREATE TABLE sample (name name, value text, again text);
INSERT INTO sample VALUES ('u', '0192e4a0-1b2c-7d3e-8f40-112233445566', '0192E4A01B2C7D3E8F40112233445566'), ('b', '42', ' 0042 '), ('c', 'abc', 'abc   '),
	('t', '2026-01-01 12:00+00', '2026-01-01 17:30+05:30'), ('d', '2026-01-01', '1 Jan 2026'), ('y', '\x4142', 'AB'), ('n', '1.50', '1.50'), ('e', 't', 'on'),
	('j', '{"a": 1, "b": 2}', '{"b":2,"a":1}'), ('a', '{1,2}', '[1:2]={1,2}');
SELECT name, fence.protect('typed', 'pay', key_column => name), typed_run(name, value) FROM sample WHERE name = 'u';
DO $$
DECLARE
	s sample;
BEGIN
	FOR s IN SELECT * FROM sample LOOP
		PERFORM fence.protect('typed', 'pay', key_column => s.name);
		IF s.name <> 'u' THEN
			ASSERT typed_run(s.name, s.value) = '1', s.name;
		END IF;
		SET LOCAL timezone = 'Asia/Kolkata';
		SET LOCAL datestyle = 'German';
		SET LOCAL bytea_output = 'escape';
		ASSERT typed_run(s.name, s.again) = 'PF102', s.name;
		SET LOCAL timezone = 'UTC';
		SET LOCAL datestyle = 'ISO';
		SET LOCAL bytea_output = 'hex';
	END LOOP;
END
$$;
RESET timezone;
RESET datestyle;
RESET bytea_output;
SELECT key FROM fence.keys WHERE scope = 'public.typed' ORDER BY key COLLATE "C";
DROP TABLE typed, sample;
DROP FUNCTION typed_run(name, text);

-- with a token column: the key is judged first, the token is stamped
CREATE TABLE both_columns (id int PRIMARY KEY, qty int, tok bigint, op text);
SELECT fence.protect('both_columns', 'pay', 'tok', key_column => 'op');
SELECT tgname, tgtype FROM pg_trigger WHERE tgrelid = 'both_columns'::regclass ORDER BY tgname;
SELECT run($$INSERT INTO both_columns VALUES (1, 1, NULL, 'a')$$), run($$UPDATE both_columns SET qty = 2, op = 'b'$$), run('UPDATE both_columns SET qty = 3');
SELECT run($$UPDATE both_columns SET qty = 4, op = 'b'$$), run($$UPDATE both_columns SET qty = 4, tok = 99, op = 'c'$$);
INSERT INTO both_columns VALUES (1, 1, 0, 'a');
INSERT INTO both_columns VALUES (1, 1, 0, 'd');
SELECT fence.protect('both_columns', 'pay', 'tok', 'row', key_column => 'op', on_duplicate => 'skip');
UPDATE both_columns SET qty = 5, tok = 2, op = 'e';
UPDATE both_columns SET qty = 6, tok = 3, op = 'e';
UPDATE both_columns SET qty = 6, tok = 1, op = 'f';
UPDATE both_columns SET qty = 6, tok = 1, op = 'e';
TABLE both_columns;
SELECT key FROM fence.keys WHERE scope = 'public.both_columns' ORDER BY 1;

-- the guard is complete, or the audit says so
SELECT severity, problem, remedy FROM fence.audit() WHERE target = 'both_columns'::regclass AND severity = 'error';
DROP TRIGGER "~fence_before_row" ON both_columns;
SELECT severity, problem, remedy FROM fence.audit() WHERE target = 'both_columns'::regclass AND severity = 'error';
SELECT run($$INSERT INTO both_columns VALUES (2, 1, NULL, 'g')$$);
SELECT fence.protect('both_columns', 'pay', key_column => 'op');
DROP TRIGGER "~fence_before_row" ON both_columns;
SELECT severity, problem, remedy FROM fence.audit() WHERE target = 'both_columns'::regclass AND severity = 'error';
SELECT run($$INSERT INTO both_columns VALUES (2, 1, NULL, 'g')$$);
DROP TABLE both_columns;

-- made by hand, without a scope
CREATE TABLE hand (id int, op text);
CREATE TRIGGER hand BEFORE INSERT OR UPDATE OR DELETE ON hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=pay', 'key_column=op');
SELECT refusal('INSERT INTO hand VALUES (1, ''a'')', 'key_scope');
DROP TABLE hand;

DROP FUNCTION run(text, bigint);
