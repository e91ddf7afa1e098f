-- fence.protect() and fence.unprotect(): what can be protected and what is
-- refused with a reason, changing a policy, and the view that lists policies.
--
-- Field cases: B09 C03 C04 C08 C10 C15 C25 G07
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE VIEW protected AS
	SELECT target, resource, token_column, marks, lease, enabled FROM fence.protected_tables
	ORDER BY target::text COLLATE "C";

-- not there before, there after, changed, gone
CREATE TABLE t (id int PRIMARY KEY, r text NOT NULL, tok bigint, tok2 bigint);
SELECT fence.unprotect('t');
SELECT fence.protect('t', 'res');
TABLE protected;
SELECT fence.protect('t', 'res:{id}');
TABLE protected;
SELECT fence.protect('t', 'res:{id}', 'tok');
TABLE protected;
SELECT fence.protect('t', 'res:{r}', 'tok2', 'row', 'postgres');
TABLE protected;
SELECT count(*), count(DISTINCT tgargs) FROM pg_trigger WHERE tgrelid = 't'::regclass;
SELECT fence.protect('t', 'res:{r}', 'tok2', 'both');
TABLE protected;
SELECT fence.protect('t', 'res');
TABLE protected;
SELECT count(*), count(DISTINCT tgargs) FROM pg_trigger WHERE tgrelid = 't'::regclass;
SELECT fence.unprotect('t');
SELECT fence.unprotect('t');
TABLE protected;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass;
INSERT INTO t VALUES (1, 'a');

-- a new policy takes effect at once, also in this transaction
BEGIN;
SELECT fence.protect('t', 'one');
SELECT fence.check('one', 1);
UPDATE t SET r = 'b';
SELECT fence.protect('t', 'two');
SAVEPOINT s;
UPDATE t SET r = 'c';
ROLLBACK TO s;
SELECT fence.protect('t', 'one', 'tok');
UPDATE t SET r = 'd';
TABLE t;
ROLLBACK TO s;
UPDATE t SET r = 'e';
ROLLBACK;
TABLE t;
-- and is rolled back
TABLE protected;
UPDATE t SET r = 'f';
BEGIN;
SELECT fence.protect('t', 'one');
UPDATE t SET r = 'g';
ROLLBACK;
UPDATE t SET r = 'g';

-- the policy is in the triggers, quoted as it has to be
SELECT fence.protect('t', $$it's {{ a "\ {id} }}$$);
TABLE protected;
SELECT refusal('DELETE FROM t', $$it's { a "\ 1 }$$);
SELECT fence.unprotect('t');
SELECT fence.protect('t', 'k=v, marks=row =');
TABLE protected;
SELECT refusal('DELETE FROM t', 'k=v, marks=row =');
SELECT fence.protect('t', E' \\ \\\\lease=\\ ');
SELECT fence.trigger_arguments(tgargs) FROM pg_trigger WHERE tgrelid = 't'::regclass GROUP BY 1;
SELECT refusal('DELETE FROM t', E' \\ \\\\lease=\\ ');
SET standard_conforming_strings = off;
SELECT fence.protect('t', E'b\\s''"{id}');
TABLE protected;
SELECT refusal('DELETE FROM t', E'b\\s''"1');
RESET standard_conforming_strings;
SELECT fence.unprotect('t');

-- C10: what cannot be covered is refused
CREATE VIEW v AS SELECT * FROM t;
CREATE MATERIALIZED VIEW mv AS SELECT * FROM t;
CREATE SEQUENCE sq;
CREATE TYPE composite AS (id int, tok bigint);
CREATE FOREIGN DATA WRAPPER regress_dummy;
CREATE SERVER regress_dummy FOREIGN DATA WRAPPER regress_dummy;
CREATE FOREIGN TABLE ft (id int, tok bigint) SERVER regress_dummy;
CREATE TABLE parent (id int, tok bigint);
CREATE TABLE child () INHERITS (parent);
CREATE TABLE parted (id int, tok bigint) PARTITION BY LIST (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE FOREIGN TABLE parted_2 PARTITION OF parted FOR VALUES IN (2) SERVER regress_dummy;
SELECT target, refusal(format('SELECT fence.protect(%L, %L)', target, 'r'), target, 'views', 'foreign')
FROM unnest('{v,mv,sq,composite,ft,t_pkey,parted_2}'::text[]) target;
SELECT target, refusal(format('SELECT fence.protect(%L, %L)', target, 'r'), split_part('.' || target, '.', -1), word)
FROM (VALUES ('parent', 'child'), ('parted', 'parted_2'), ('pg_class', 'system'), ('pg_toast.pg_toast_2619', 'tables'),
	('fence.resource', 'pg_fence'), ('fence.leases', 'views')) x (target, word);
SELECT refusal($$SELECT fence.unprotect('v')$$, 'v'), refusal($$SELECT fence.unprotect('no_such')$$);
TABLE protected;
DROP FOREIGN TABLE parted_2;
SELECT fence.protect('parted', 'r');
DROP TABLE child;
SELECT fence.protect('parent', 'r');
-- a child that appears after that: protect() says so
CREATE TABLE child () INHERITS (parent);
SELECT fence.protect('parent', 'r');
-- a child by itself can be protected; it is written through its parent as well
SELECT fence.unprotect('parent');
SELECT fence.protect('child', 'r-child');
INSERT INTO child VALUES (1, 1);
INSERT INTO child SELECT 1, 1 WHERE fence.check('r-child', 1);
UPDATE parent SET tok = 2;
DELETE FROM parent;
DELETE FROM ONLY parent;
BEGIN;
SELECT fence.check('r-child', 1);
UPDATE parent SET tok = 2;
COMMIT;
TABLE child;
DROP TABLE parent, parted CASCADE;
DROP FOREIGN DATA WRAPPER regress_dummy CASCADE;
DROP VIEW v;
DROP MATERIALIZED VIEW mv;
DROP SEQUENCE sq;
DROP TYPE composite;
-- an updatable view over a protected table leads to the guard
SELECT fence.protect('t', 'res');
CREATE VIEW v AS SELECT id, r FROM t;
UPDATE v SET r = 'x';
INSERT INTO v VALUES (5, 'x');
UPDATE v SET r = 'x' WHERE fence.check('res', 1);
TABLE v;
DROP VIEW v;
-- a rule leads away from it; what it writes elsewhere is guarded there
CREATE TABLE other (id int, r text);
CREATE RULE away AS ON UPDATE TO t DO INSTEAD INSERT INTO other VALUES (NEW.id, NEW.r);
UPDATE t SET r = 'y';
TABLE other;
TABLE t;
DROP RULE away ON t;
CREATE RULE here AS ON INSERT TO other DO ALSO UPDATE t SET r = NEW.r;
INSERT INTO other VALUES (2, 'z');
TABLE other;
DROP TABLE other;
SELECT fence.unprotect('t');

-- B09, C25: token columns that are of no use
CREATE TABLE token_columns (
	id int,
	as_int int, as_numeric numeric, as_text text, as_uuid uuid, as_array bigint[],
	base bigint,
	generated bigint GENERATED ALWAYS AS (base * 2) STORED,
	identity_always bigint GENERATED ALWAYS AS IDENTITY,
	gone bigint);
CREATE DOMAIN token_domain AS bigint CHECK (VALUE > 0);
ALTER TABLE token_columns ADD as_domain token_domain, DROP gone;
SELECT c, refusal(format('SELECT fence.protect(%L, %L, %L)', 'token_columns', 'r', c), c, 'token_columns')
FROM unnest('{as_int,as_numeric,as_text,as_uuid,as_array,as_domain,generated,identity_always,gone,........pg.dropped.10........,tableoid,xmin}'::text[]) c;
-- and columns that cannot name a resource
SELECT refusal($$SELECT fence.protect('token_columns', 'r-{generated}', 'base')$$, 'generated', 'token_columns');
SELECT refusal($$SELECT fence.protect('token_columns', 'r-{........pg.dropped.10........}')$$);
-- without a token column, a generated one can: it is known after the row is written
SELECT fence.protect('token_columns', 'gen-{generated}');
INSERT INTO token_columns (base) VALUES (21);
BEGIN;
SELECT fence.check('gen-42', 1);
INSERT INTO token_columns (base) VALUES (21);
SELECT fence.check('gen-44', 1);
UPDATE token_columns SET base = 22;
DELETE FROM token_columns;
COMMIT;
DROP TABLE token_columns;
DROP DOMAIN token_domain;

-- Kinds of tables
CREATE TEMPORARY TABLE kind_temp (id int PRIMARY KEY, tok bigint);
SELECT fence.protect('kind_temp', 'kind', 'tok');
INSERT INTO kind_temp VALUES (1, NULL);
INSERT INTO kind_temp VALUES (1, 1);
INSERT INTO kind_temp VALUES (1, 2) ON CONFLICT (id) DO UPDATE SET tok = excluded.tok;
UPDATE kind_temp SET tok = 1;
SELECT fence.protect('kind_temp', 'kind');
SELECT fence.unprotect('kind_temp');
DROP TABLE kind_temp;
CREATE UNLOGGED TABLE kind_unlogged (id int);
SELECT fence.protect('kind_unlogged', 'kind');
INSERT INTO kind_unlogged VALUES (1);
DROP TABLE kind_unlogged;
CREATE TYPE kind_row AS (id int, tok bigint);
CREATE TABLE kind_typed OF kind_row;
SELECT fence.protect('kind_typed', 'kind-{id}', 'tok');
INSERT INTO kind_typed VALUES (1, NULL);
INSERT INTO kind_typed VALUES (1, 1);
SELECT fence.mark('kind-1');
DROP TABLE kind_typed;
DROP TYPE kind_row;
CREATE SCHEMA kind_schema;
CREATE TABLE kind_schema.t (id int);
SELECT fence.protect('kind_schema.t', 'kind');
SELECT resource FROM fence.protected_tables WHERE target = 'kind_schema.t'::regclass;
INSERT INTO kind_schema.t VALUES (1);
INSERT INTO t VALUES (6, 'g');
DROP SCHEMA kind_schema CASCADE;

-- Triggers that bear our names, or call our function, but were made by somebody else
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
SELECT fence.protect('t', 'res');
CREATE TEMPORARY TABLE name_taken AS SELECT tgname FROM pg_trigger WHERE tgrelid = 't'::regclass;
SELECT fence.unprotect('t');
SELECT format('CREATE TRIGGER %I BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION nothing()', min(tgname)) FROM name_taken \gexec
SELECT refusal($$SELECT fence.protect('t', 'res')$$, 't', (SELECT min(tgname::text) FROM name_taken));
SELECT tgfoid::regproc, count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass GROUP BY 1;
SELECT fence.unprotect('t');
SELECT format('DROP TRIGGER %I ON t', min(tgname)) FROM name_taken \gexec
-- by hand: wrong kinds and arguments do not let anything through
CREATE TRIGGER hand BEFORE UPDATE ON t FOR EACH STATEMENT EXECUTE FUNCTION fence.guard('resource=res');
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH STATEMENT EXECUTE FUNCTION fence.guard('resource=res:{id}');
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=res');
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard();
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=res', 'resource=res');
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=res', 'nonsense');
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=res', 'marks=rows');
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=res', 'lease=redis');
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=', 'marks=resource');
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=res', 'token_column=nope');
UPDATE t SET r = 'h';
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=res', 'token_column=r');
UPDATE t SET r = 'h';
TABLE t;
-- one that can work, does; protect() replaces it
CREATE OR REPLACE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=res:{id}');
UPDATE t SET r = 'h';
UPDATE t SET r = 'h' WHERE fence.check('res:' || id, 1);
SELECT target, resource, enabled FROM protected;
SELECT fence.protect('t', 'res');
TABLE protected;
SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass AND tgname = 'hand';
SELECT fence.unprotect('t');
CREATE TRIGGER hand AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=res:{id}');
SELECT fence.unprotect('t');
-- the trigger function is no ordinary function
SELECT fence.guard();

-- C08: disabled guards are seen, and protect() enables them again
SELECT fence.protect('t', 'res');
ALTER TABLE t DISABLE TRIGGER USER;
UPDATE t SET r = 'i';
TABLE protected;
SELECT fence.protect('t', 'res');
TABLE protected;
UPDATE t SET r = 'j';
SELECT fence.unprotect('t');
TABLE protected;

DROP TABLE t;
DROP FUNCTION nothing();
DROP VIEW protected;
