-- What every error tells: SQLSTATE, message, a detail with the numbers, a hint
-- that says what to do, and the table and column where there are some.
-- Points in time are shown as TIME.
\set VERBOSITY sqlstate
SET default_transaction_isolation = 'read committed';

CREATE FUNCTION report(command text) RETURNS TABLE (field text, value text) LANGUAGE plpgsql AS $$
DECLARE
	s text; m text; d text; h text; n text; t text; c text; k text;
BEGIN
	EXECUTE command;
	RAISE 'not refused';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS s = RETURNED_SQLSTATE, m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT,
		n = SCHEMA_NAME, t = TABLE_NAME, c = COLUMN_NAME, k = CONSTRAINT_NAME;
	RETURN QUERY
		SELECT f, v FROM (VALUES ('sqlstate', s), ('message', m), ('detail', regexp_replace(d, ' at \d{4}-[^"]*\.$', ' at TIME.')),
			('hint', h), ('place', concat_ws('.', nullif(n, ''), nullif(t, ''), nullif(c, '')))) x (f, v) WHERE v <> '';
END
$$;
\pset tuples_only
\pset format unaligned
\pset fieldsep ': '

CREATE SCHEMA err;
CREATE TABLE err.plain (id int PRIMARY KEY, qty int);
CREATE TABLE err.named (id int PRIMARY KEY, qty int);
CREATE TABLE err.both (id int, part int, qty int, tok bigint, PRIMARY KEY (id, part));
CREATE TABLE err.row (id int PRIMARY KEY, qty int, tok bigint);
CREATE TABLE err.keyless (id int, tok bigint);
SELECT acquired, token FROM fence.acquire('err', 'worker-a', '1 hour');
SELECT fence.check('err-external', 500, 'node-3');
SELECT fence.check('err-unknown', 5);
INSERT INTO err.plain VALUES (1, 1);
INSERT INTO err.named VALUES (1, 1);
INSERT INTO err.both VALUES (1, 1, 1, 5);
INSERT INTO err.row VALUES (1, 1, 5);
INSERT INTO err.keyless VALUES (1, 5);
SELECT fence.protect('err.plain', 'err');
SELECT fence.protect('err.named', 'err-{id}');
SELECT fence.protect('err.both', 'err-both-{id}', 'tok');
SELECT fence.protect('err.row', 'err-row-{id}', 'tok', 'row');
SELECT fence.protect('err.keyless', 'err-keyless', 'tok', 'row');

--
-- PF001, a stale token
--
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'err';
SELECT acquired, token FROM fence.acquire('err', 'worker-b', '1 hour');
SELECT * FROM report($$SELECT fence.check('err', 1)$$);
SELECT * FROM report($$SELECT fence.check('err-unknown', 4)$$);
-- far below the mark of a source that may have been reset
SELECT * FROM report($$SELECT fence.check('err-external', 2)$$);
SELECT * FROM report($$SELECT fence.check('err-external', 499)$$);
-- by what the row holds; by the mark, from a column
SELECT * FROM report($$UPDATE err.row SET qty = 2, tok = 4$$);
SELECT * FROM report($$UPDATE err.keyless SET tok = 4$$);
SELECT fence.check('err-both-1', 6);
SELECT * FROM report($$UPDATE err.both SET qty = 2, tok = 4$$);
SELECT * FROM report($$INSERT INTO err.both VALUES (1, 2, 2, 4)$$);
SELECT fence.check('err-row-2', 6);
SELECT * FROM report($$INSERT INTO err.row VALUES (2, 2, 4)$$);
-- by what the transaction itself presented
BEGIN;
SELECT fence.check('err-unknown', 6);
SELECT * FROM report($$SELECT fence.check('err-unknown', 5)$$);
ROLLBACK;
BEGIN;
SELECT fence.check('err-unknown', 5);
SELECT fence.raise_mark('err-unknown', 7);
SELECT * FROM report($$SELECT fence.check('err-unknown', 7)$$);
SELECT * FROM report($$SELECT fence.check('err-unknown', 8)$$);
ROLLBACK;
-- by the floor, after the resource was forgotten
BEGIN;
UPDATE fence.resource SET marked_at = marked_at - interval '10 years' WHERE name = 'err-external';
SELECT fence.forget('5 years');
SELECT * FROM report($$SELECT fence.check('err-external', 500)$$);
SELECT * FROM report($$SELECT fence.check('err-never', 499)$$);
SELECT * FROM report($$INSERT INTO err.row VALUES (3, 2, 500)$$);
SELECT * FROM report($$SELECT fence.raise_mark('err-never', 499)$$);
ROLLBACK;
-- at commit
\pset tuples_only off
\set VERBOSITY terse
BEGIN;
SELECT fence.check('err-unknown', 5) AS ok;
SELECT fence.raise_mark('err-unknown', 7) AS mark;
COMMIT;
BEGIN;
SELECT fence.check('err-unknown', 5) AS ok;
DELETE FROM fence.resource WHERE name = 'err-unknown';
COMMIT;
\set VERBOSITY sqlstate
\pset tuples_only on

--
-- PF002, no token
--
SELECT * FROM report($$UPDATE err.plain SET qty = 2$$);
SELECT * FROM report($$UPDATE err.named SET qty = 2$$);
SELECT * FROM report($$UPDATE err.both SET qty = 2$$);
SELECT * FROM report($$INSERT INTO err.row VALUES (3)$$);
SELECT * FROM report($$DELETE FROM err.row$$);
SELECT * FROM report($$TRUNCATE err.plain$$);
SELECT * FROM report($$TRUNCATE err.named$$);
BEGIN;
SELECT fence.check('err-other', 1);
SELECT * FROM report($$UPDATE err.named SET qty = 2$$);
ROLLBACK;

--
-- PF003, another holder
--
SELECT * FROM report($$SELECT fence.check('err', 2, 'worker-c')$$);
SELECT * FROM report($$SELECT fence.check('err-external', 500, 'node-9')$$);

--
-- PF004, never issued
--
SELECT * FROM report($$SELECT fence.check('err', 3)$$);
SELECT acquired, token FROM fence.acquire('err-both-1', 'worker-a', '1 hour');
SELECT * FROM report($$UPDATE err.both SET tok = 8$$);

--
-- PF005, no lease
--
SELECT * FROM report($$SELECT fence.check('err-external', 500, lease => 'postgres')$$);
SELECT fence.release('err', 2);
SELECT * FROM report($$SELECT fence.check('err', 2, lease => 'postgres')$$);
UPDATE fence.resource SET released_at = NULL, expires_at = clock_timestamp() WHERE name = 'err';
SELECT * FROM report($$SELECT fence.check('err', 2, lease => 'postgres')$$);
UPDATE fence.resource SET expires_at = clock_timestamp() + '1 hour', home = home + 1 WHERE name = 'err';
SELECT * FROM report($$SELECT fence.check('err', 2, lease => 'postgres')$$);
SELECT fence.protect('err.plain', 'err', lease => 'postgres');
SELECT * FROM report($$UPDATE err.plain SET qty = 2 WHERE fence.check('err', 2)$$);
SELECT fence.protect('err.both', 'err-both-{id}', 'tok', lease => 'postgres');
UPDATE fence.resource SET released_at = clock_timestamp() WHERE name = 'err-both-1';
SELECT * FROM report($$UPDATE err.both SET tok = 7$$);

--
-- Standard codes
--
SELECT * FROM report($$SELECT fence.check('err', 0)$$);
SELECT * FROM report($$SELECT fence.check(repeat('x', 513), 1)$$);
SELECT * FROM report($$SELECT fence.check('err', 2, lease => 'redis')$$);
SELECT * FROM report($$UPDATE err.row SET tok = 0$$);
SELECT * FROM report($$SELECT fence.raise_mark('err-external', 499)$$);
ALTER TABLE err.named DROP CONSTRAINT named_pkey, ALTER id DROP NOT NULL;
SELECT * FROM report($$INSERT INTO err.named VALUES (NULL)$$);
SELECT * FROM report($$SELECT fence.protect('err.row', 'r-{id', 'tok')$$);
SELECT * FROM report($$SELECT fence.protect('err.row', 'r-{nope}', 'tok')$$);
SELECT * FROM report($$SELECT fence.protect('err.row', 'r', 'qty')$$);
SELECT * FROM report($$SELECT fence.protect('err.row', 'r', marks => 'row')$$);
SELECT * FROM report($$SELECT fence.protect('err.row', 'r', 'tok', 'rows')$$);
SELECT * FROM report($$SELECT fence.protect('fence.leases', 'r')$$);
ALTER TABLE err.row RENAME tok TO token;
SELECT * FROM report($$DELETE FROM err.row$$);
ALTER TABLE err.row RENAME token TO tok;
ALTER TABLE err.row ALTER tok TYPE text;
SELECT * FROM report($$DELETE FROM err.row$$);
SELECT fence.check('err-max', 9223372036854775807);
SELECT * FROM report($$SELECT fence.acquire('err-max', 'worker-a')$$);
SELECT * FROM report($$SELECT fence.acquire_many(ARRAY['err-m', NULL], 'worker-a')$$);
SELECT * FROM report($$SELECT fence.hand_over('err', 2, repeat('h', 513))$$);
SELECT * FROM report($$SELECT fence.forget('1 day', 0)$$);
SELECT * FROM report($$SELECT fence.protect('err.plain', 'r', mode => 'off')$$);
-- guards made by hand
CREATE TABLE err.hand (id int PRIMARY KEY, tok bigint);
CREATE TRIGGER hand BEFORE INSERT ON err.hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r');
SELECT * FROM report($$INSERT INTO err.hand VALUES (1)$$);
CREATE OR REPLACE TRIGGER hand AFTER INSERT ON err.hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r', 'token_column=tok');
SELECT * FROM report($$INSERT INTO err.hand VALUES (1)$$);
CREATE OR REPLACE TRIGGER hand AFTER INSERT ON err.hand FOR EACH ROW EXECUTE FUNCTION fence.guard();
SELECT * FROM report($$INSERT INTO err.hand VALUES (1)$$);
CREATE OR REPLACE TRIGGER hand AFTER INSERT ON err.hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r', 'colour=red');
SELECT * FROM report($$INSERT INTO err.hand VALUES (1)$$);
CREATE OR REPLACE TRIGGER hand AFTER INSERT ON err.hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r', 'resource=r');
SELECT * FROM report($$INSERT INTO err.hand VALUES (1)$$);
-- what a guard that observes says
CREATE OR REPLACE TRIGGER hand AFTER INSERT ON err.hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r', 'mode=observe');
\set VERBOSITY default
INSERT INTO err.hand VALUES (1);
\set VERBOSITY sqlstate

--
\pset tuples_only off
SET client_min_messages = warning;
DROP SCHEMA err CASCADE;
DROP FUNCTION report(text);
