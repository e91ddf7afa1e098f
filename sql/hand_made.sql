-- Guard triggers made by hand: with wrong arguments, of a kind that cannot serve,
-- on what is no table.  What cannot be judged is refused, with the reason.
--
-- Field cases: C04 C14 C15
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET default_transaction_isolation = 'read committed';

CREATE TABLE hand (id int PRIMARY KEY, r text, qty int, tok bigint);
INSERT INTO hand VALUES (1, 'x', 1, 5);
-- Makes the trigger, writes with the token presented, and without any guard shows what is stored.
CREATE FUNCTION try_guard(kind text, arguments text[], command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	result text;
BEGIN
	EXECUTE format('CREATE TRIGGER hand %s EXECUTE FUNCTION fence.guard(%s)', kind,
		(SELECT string_agg(quote_literal(a), ', ' ORDER BY n) FROM unnest(arguments) WITH ORDINALITY u (a, n)));
	PERFORM fence.check('r', 5);
	PERFORM fence.check('r-1', 5);
	result := refusal(command);
	EXECUTE format('DROP TRIGGER hand ON %s', substring(kind FROM 'ON (\w+)'));
	RETURN result;
END
$$;

-- arguments; a proper one in between
SELECT a, try_guard('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH ROW', a, 'UPDATE hand SET qty = qty + 1')
FROM (VALUES ('{}'::text[]), ('{""}'), ('{resource}'), ('{resource=}'), ('{=r}'), ('{Resource=r}'), ('{" resource=r"}'), ('{marks=resource}'), ('{r}'),
	('{resource=r}'), ('{resource=r,resource=r}'), ('{resource=r,resource=s}'), ('{resource=r,marks=resource,marks=resource}'),
	('{resource=r,marks=}'), ('{resource=r,marks=rows}'), ('{resource=r,marks=row}'), ('{resource=r,marks=both}'), ('{resource=r,marks=resource,token_column=tok}'),
	('{resource=r,lease=}'), ('{resource=r,lease=redis}'), ('{resource=r,mode=}'), ('{resource=r,mode=off}'), ('{resource=r,mode=enforce}'),
	('{resource=r,key_column=id}'), ('{resource=r,token_column}'), ('{resource=r,bypass=on}'),
	('{"resource=r marks=resource"}'), ('{"marks=resource mode=enforce",resource=r}'), ('{"resource=r marks=rows"}'), ('{"resource=r resource=r"}'), ('{"resource=r "}'), ('{"resource=r  marks=resource"}'),
	('{"resource=r\\ marks=resource"}'), ('{"resource=\\r"}'), ('{"resource=r\\"}'), ('{"resource=r\\\\"}'),
	('{"resource=r-{nope}"}'), ('{"resource=r-{"}'), ('{"resource=r-}"}'), ('{"resource=r-{id"}'), ('{"resource=r-{}"}'), ('{"resource=r-{id}"}'), ('{"resource=r-{ctid}"}')) v (a);
SELECT a, try_guard('BEFORE INSERT OR UPDATE OR DELETE ON hand FOR EACH ROW', a, 'UPDATE hand SET qty = qty + 1')
FROM (VALUES ('{resource=r,token_column=tok}'::text[]), ('{resource=r,token_column=}'), ('{resource=r,token_column=nope}'), ('{resource=r,token_column=TOK}'), ('{resource=r,token_column=id}'),
	('{resource=r,token_column=r}'), ('{resource=r,token_column=ctid}'), ('{resource=r,token_column=tok,token_column=tok}'), ('{resource=r}')) v (a);
TABLE hand;

-- kinds, with arguments that would do
SELECT kind, column_too, try_guard(kind, ARRAY['resource=r'] || CASE WHEN column_too THEN '{token_column=tok}'::text[] ELSE '{}' END, command)
FROM (VALUES
	('BEFORE INSERT OR UPDATE OR DELETE ON hand FOR EACH STATEMENT', 'UPDATE hand SET qty = 0'),
	('BEFORE INSERT OR UPDATE OR DELETE ON hand FOR EACH STATEMENT', 'DELETE FROM hand'),
	('BEFORE INSERT OR UPDATE OR DELETE ON hand FOR EACH STATEMENT', 'INSERT INTO hand VALUES (9)'),
	('BEFORE INSERT OR UPDATE OR DELETE ON hand FOR EACH STATEMENT', 'UPDATE hand SET qty = 0 WHERE false')) v (kind, command),
	unnest('{f,t}'::boolean[]) column_too;
SELECT kind, try_guard(kind, '{resource=r,token_column=tok}', command)
FROM (VALUES
	('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH STATEMENT', 'UPDATE hand SET qty = 0'),
	('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH STATEMENT', 'DELETE FROM hand'),
	('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH ROW', 'UPDATE hand SET qty = 0'),
	('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH ROW', 'UPDATE hand SET tok = 5'),
	('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH ROW', 'INSERT INTO hand VALUES (9, NULL, 9, 5)'),
	('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH ROW', 'DELETE FROM hand')) v (kind, command);
SELECT kind, try_guard(kind, '{"resource=r-{id}"}', command)
FROM (VALUES
	('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH STATEMENT', 'UPDATE hand SET qty = 0'),
	('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH STATEMENT', 'UPDATE hand SET qty = 0 WHERE false'),
	('BEFORE UPDATE ON hand FOR EACH ROW', 'UPDATE hand SET qty = 0'),
	('BEFORE DELETE ON hand FOR EACH ROW', 'DELETE FROM hand'),
	('BEFORE TRUNCATE ON hand FOR EACH STATEMENT', 'TRUNCATE hand'),
	('AFTER TRUNCATE ON hand FOR EACH STATEMENT', 'TRUNCATE hand')) v (kind, command);
-- marks => 'row' with AFTER alone: nothing there says what the statement set
SELECT command, try_guard('AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH ROW', '{resource=r,token_column=tok,marks=row}', command)
FROM unnest(ARRAY['UPDATE hand SET qty = 0', 'UPDATE hand SET tok = 6', 'DELETE FROM hand', 'INSERT INTO hand VALUES (9, NULL, 9, 9)']) command;
TABLE hand;
-- the same with the presented token in a transaction that writes nothing else
SELECT try_guard('AFTER TRUNCATE ON hand FOR EACH STATEMENT', '{resource=s}', 'TRUNCATE hand');
SELECT try_guard('AFTER UPDATE ON hand FOR EACH STATEMENT', '{resource=s}', 'UPDATE hand SET qty = 0');
TABLE hand;

-- on a view, instead of
CREATE VIEW hand_view AS SELECT id, r, qty, tok FROM hand;
SELECT e, try_guard(format('INSTEAD OF %s ON hand_view FOR EACH ROW', e), '{resource=r}', command), try_guard(format('INSTEAD OF %s ON hand_view FOR EACH ROW', e), '{resource=r,token_column=tok}', command)
FROM (VALUES ('INSERT', 'INSERT INTO hand_view VALUES (9)'), ('UPDATE', 'UPDATE hand_view SET qty = 0'), ('DELETE', 'DELETE FROM hand_view')) v (e, command);
TABLE hand;
DROP VIEW hand_view;

-- what a refusal tells: table, trigger or column, and the remedy
CREATE TRIGGER "od""d" BEFORE UPDATE ON hand FOR EACH STATEMENT EXECUTE FUNCTION fence.guard('resource=r');
SELECT refusal('UPDATE hand SET qty = 0', 'hand', 'od"d', 'fence.protect()');
DROP TRIGGER "od""d" ON hand;
CREATE TRIGGER odd AFTER UPDATE ON hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r', 'colour=red');
SELECT refusal('UPDATE hand SET qty = 0', 'hand', 'colour=red', 'fence.protect()');
CREATE OR REPLACE TRIGGER odd AFTER UPDATE ON hand FOR EACH ROW EXECUTE FUNCTION fence.guard();
SELECT refusal('UPDATE hand SET qty = 0', 'hand', 'resource=', 'fence.protect()');
CREATE OR REPLACE TRIGGER odd AFTER UPDATE ON hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource={nope}');
SELECT refusal('UPDATE hand SET qty = 0', 'hand', 'nope', 'fence.protect()');
\set SHOW_CONTEXT always
\set VERBOSITY default
UPDATE hand SET qty = 0;
\set VERBOSITY sqlstate
-- the failure is not kept: with the column there, it is judged
ALTER TABLE hand ADD nope text DEFAULT 'r';
UPDATE hand SET qty = 2;
UPDATE hand SET qty = 2 WHERE fence.check('r', 5);
ALTER TABLE hand DROP nope;
UPDATE hand SET qty = 3 WHERE fence.check('r', 5);
DROP TRIGGER odd ON hand;

-- deferred to the commit, by a constraint trigger: judged then
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT OR UPDATE OR DELETE ON hand DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r');
BEGIN;
UPDATE hand SET qty = 4;
COMMIT;
BEGIN;
UPDATE hand SET qty = 4;
SELECT fence.check('r', 4);
COMMIT;
BEGIN;
UPDATE hand SET qty = 4;
SELECT fence.check('r', 5);
COMMIT;
TABLE hand;
DROP TRIGGER deferred ON hand;

-- with transition tables, which do not matter
CREATE TRIGGER transition AFTER UPDATE ON hand REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION fence.guard('resource=r');
UPDATE hand SET qty = 5;
UPDATE hand SET qty = 5 WHERE fence.check('r', 5);
DROP TRIGGER transition ON hand;

-- of a kind that cannot serve, but only observing: a warning for the statement, and the write goes through
CREATE TRIGGER kind BEFORE UPDATE ON hand FOR EACH STATEMENT EXECUTE FUNCTION fence.guard('resource=r', 'mode=observe');
UPDATE hand SET qty = qty + 1;
DROP TRIGGER kind ON hand;
CREATE TRIGGER kind AFTER INSERT OR UPDATE OR DELETE ON hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r', 'token_column=tok', 'mode=observe');
UPDATE hand SET qty = qty + 1;
INSERT INTO hand VALUES (8, 'x', 1, 1), (9, 'x', 1, 1);
DELETE FROM hand WHERE id > 1;
TABLE hand;
DROP TRIGGER kind ON hand;
-- INSTEAD OF there is nothing to let through
CREATE VIEW hand_view AS SELECT id, r, qty, tok FROM hand;
CREATE TRIGGER kind INSTEAD OF UPDATE ON hand_view FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r', 'mode=observe');
UPDATE hand_view SET qty = 0;
DROP VIEW hand_view;
UPDATE hand SET qty = qty - 2;

-- two guards: both are asked
CREATE TRIGGER one AFTER UPDATE ON hand FOR EACH STATEMENT EXECUTE FUNCTION fence.guard('resource=r');
CREATE TRIGGER two AFTER UPDATE ON hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r-{id}');
UPDATE hand SET qty = 6 WHERE fence.check('r', 5);
UPDATE hand SET qty = 6 WHERE fence.check('r-1', 5);
UPDATE hand SET qty = 6 WHERE fence.check('r', 5) AND fence.check('r-1', 5);
TABLE hand;
-- one of them observes
CREATE OR REPLACE TRIGGER two AFTER UPDATE ON hand FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=r-{id}', 'mode=observe');
UPDATE hand SET qty = 7 WHERE fence.check('r', 5);
UPDATE hand SET qty = 8 WHERE fence.check('r-1', 5);
TABLE hand;
-- a scope longer than fence.claim() can name: no other scope is taken for it
CREATE TABLE hand_key (id text);
SELECT format('CREATE TRIGGER hand BEFORE INSERT ON hand_key FOR EACH ROW EXECUTE FUNCTION fence.guard(%L, %L, %L)', 'resource=r', 'key_column=id', 'key_scope=' || repeat('s', 600)) AS make \gset
:make;
INSERT INTO hand_key VALUES ('key');
SELECT fence.once('key', repeat('s', 512));
SELECT fence.once('other', repeat('s', 512));
SELECT fence.once('key', repeat('s', 512));
DELETE FROM fence.idempotency_key WHERE scope LIKE 'sss%';
DROP TABLE hand_key;
-- protect() makes it one
SELECT fence.protect('hand', 'r');
SELECT tgname LIKE '~fence\_%' AS ours, count(*) FROM pg_trigger WHERE tgrelid = 'hand'::regclass GROUP BY 1;
UPDATE hand SET qty = 9 WHERE fence.check('r', 5);
TABLE hand;

-- not a trigger, and not one for events
SELECT fence.guard();
CALL fence.guard();
DO $$ BEGIN PERFORM fence.guard(); END $$;
CREATE EVENT TRIGGER hand ON ddl_command_end EXECUTE FUNCTION fence.guard();
SELECT set_config('hand.make', format('CREATE FUNCTION as_sql() RETURNS int LANGUAGE c AS %L, %L', probin, prosrc), false) <> '' AS made
FROM pg_proc WHERE oid = 'fence.guard()'::regprocedure;
DO $$ BEGIN EXECUTE current_setting('hand.make'); END $$;
SELECT as_sql();
DROP FUNCTION as_sql();

DROP TABLE hand;
DROP FUNCTION try_guard(text, text[], text);
