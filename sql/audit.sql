-- fence.audit(): each weakness is made, reported with a severity and a remedy,
-- and gone once the remedy has been carried out.  Partitions and inheritance
-- children are in attach, subscriptions elsewhere.
--
-- Field cases: C04 C05 C08 C14 C24
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET default_transaction_isolation = 'read committed';
SET synchronous_commit = on;

-- What the server and the other databases have is not ours to test, nor what
-- other files have left.
CREATE VIEW audit AS
	SELECT target, severity, problem, remedy FROM fence.audit()
	WHERE target::text ~ 'aud|^fence\.' OR problem ~ 'regress_fence|"aud'
	ORDER BY target::text COLLATE "C", problem COLLATE "C", remedy COLLATE "C";
CREATE ROLE regress_fence_aud;
CREATE ROLE regress_fence_group;
CREATE ROLE "regress_fence Login" LOGIN;

-- healthy: nothing
CREATE TABLE aud_plain (id int PRIMARY KEY);
CREATE TABLE aud_named (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE aud_row (id int PRIMARY KEY, qty int, tok bigint);
CREATE TABLE aud_both (id int PRIMARY KEY, qty int, tok bigint);
CREATE TABLE aud_fk (id int REFERENCES aud_plain ON DELETE CASCADE);
CREATE TABLE aud_part (id int, tok bigint) PARTITION BY LIST (id);
CREATE TABLE aud_part_1 PARTITION OF aud_part FOR VALUES IN (1);
CREATE TABLE aud_parent (id int);
INSERT INTO aud_named VALUES (1, 'x');
CREATE TABLE aud_child () INHERITS (aud_parent);
SELECT fence.protect('aud_plain', 'aud'), fence.protect('aud_named', $$aud '{name}'$$, lease => 'postgres'),
	fence.protect('aud_row', 'aud-{id}', 'tok', 'row'), fence.protect('aud_both', 'aud-{id}', 'tok', lease => 'postgres'),
	fence.protect('aud_fk', 'aud'), fence.protect('aud_part', 'aud-part', 'tok'), fence.protect('aud_child', 'aud');
SELECT acquired, token FROM fence.acquire('aud', 'a', '1 hour');
SELECT acquired, token FROM fence.acquire('aud-1', 'a', '1 hour');
INSERT INTO aud_both VALUES (1, 1, 1);
INSERT INTO aud_row VALUES (1, 1, 1), (2, 1, 700);
INSERT INTO aud_part VALUES (1, 5);
CREATE FUNCTION aud_fn() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER early BEFORE INSERT OR UPDATE ON aud_both FOR EACH ROW EXECUTE FUNCTION aud_fn();
CREATE TRIGGER "~~after" AFTER INSERT OR UPDATE ON aud_both FOR EACH ROW EXECUTE FUNCTION aud_fn();
CREATE TRIGGER "~~statement" BEFORE INSERT OR UPDATE ON aud_both FOR EACH STATEMENT EXECUTE FUNCTION aud_fn();
CREATE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON aud_named FOR EACH ROW EXECUTE FUNCTION aud_fn();
TABLE audit;
SELECT severity FROM fence.audit() WHERE severity NOT IN ('error', 'warning');

-- C08: disabled, all of them, one, for the origin only
ALTER TABLE aud_plain DISABLE TRIGGER USER;
ALTER TABLE aud_both DISABLE TRIGGER "~fence_before_row";
ALTER TABLE aud_row ENABLE REPLICA TRIGGER "~fence_after_write";
ALTER TABLE aud_part_1 DISABLE TRIGGER "~fence_before_row";
ALTER TABLE aud_named ENABLE ALWAYS TRIGGER "~fence_after_row";
INSERT INTO aud_plain VALUES (1);
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
INSERT INTO aud_plain VALUES (2);
UPDATE aud_both SET qty = 2;
UPDATE aud_part SET tok = NULL;
-- or with protect()
ALTER TABLE aud_both DISABLE TRIGGER ALL;
SELECT fence.protect('aud_both', 'aud-{id}', 'tok', lease => 'postgres');
TABLE audit;
-- missing
DROP TRIGGER "~fence_truncate" ON aud_plain;
DROP TRIGGER "~fence_after_write" ON aud_both;
DROP TRIGGER "~fence_before_row" ON aud_row;
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
SELECT target, resource, token_column, marks, lease, mode FROM fence.protected_tables WHERE target::text LIKE 'aud%' ORDER BY target::text COLLATE "C";
SELECT tgname FROM pg_trigger WHERE tgrelid = 'aud_plain'::regclass AND NOT tgisinternal ORDER BY tgname;
UPDATE aud_row SET qty = 2;
DROP TRIGGER "~fence_statement" ON aud_plain;
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
INSERT INTO aud_plain VALUES (2);

-- C04: limited to a column, or to some rows or events; by hand
CREATE TRIGGER hand AFTER UPDATE OF qty ON aud_both FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=aud-{id}', 'marks=both', 'token_column=tok', 'lease=postgres');
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
CREATE OR REPLACE TRIGGER "~fence_statement" AFTER INSERT OR UPDATE OR DELETE ON aud_plain
	FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION fence.guard('resource=aud', 'marks=resource');
CREATE OR REPLACE TRIGGER "~fence_after_row" AFTER INSERT OR DELETE OR UPDATE OF name ON aud_named
	FOR EACH ROW EXECUTE FUNCTION fence.guard(E'resource=aud\\ ''{name}''', 'marks=resource', 'lease=postgres');
INSERT INTO aud_plain VALUES (10);
SELECT target, severity, problem FROM audit;
SELECT remedy FROM audit \gexec
TABLE audit;
INSERT INTO aud_plain VALUES (11);
UPDATE aud_named SET id = 1;
SELECT target, resource, lease, enabled FROM fence.protected_tables WHERE target IN ('aud_plain'::regclass, 'aud_named'::regclass) ORDER BY 1;
CREATE OR REPLACE TRIGGER "~fence_after_row" AFTER INSERT ON aud_named
	FOR EACH ROW EXECUTE FUNCTION fence.guard(E'resource=aud\\ ''{name}''', 'marks=resource', 'lease=postgres');
CREATE OR REPLACE TRIGGER "~fence_before_row" BEFORE INSERT OR UPDATE ON aud_both
	FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=aud-{id}', 'marks=both', 'token_column=tok', 'lease=postgres');
CREATE OR REPLACE TRIGGER "~fence_after_write" AFTER UPDATE ON aud_row
	FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=aud-{id}', 'marks=row', 'token_column=tok');
SELECT target, severity FROM audit;
SELECT DISTINCT remedy FROM audit ORDER BY 1 \gexec
TABLE audit;
DELETE FROM aud_both;
DELETE FROM aud_named;

-- two policies
CREATE TRIGGER hand AFTER UPDATE ON aud_plain FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=aud', 'marks=resource', 'lease=postgres');
SELECT target, severity, problem FROM audit;
SELECT fence.protect('aud_plain', 'aud');
TABLE audit;

-- C05: a trigger that comes after ours
CREATE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON aud_both FOR EACH ROW EXECUTE FUNCTION aud_fn();
CREATE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON aud_part FOR EACH ROW EXECUTE FUNCTION aud_fn();
CREATE TRIGGER "~~own" BEFORE INSERT OR UPDATE ON aud_part_1 FOR EACH ROW EXECUTE FUNCTION aud_fn();
TABLE audit;
ALTER TRIGGER "~~late" ON aud_both RENAME TO sooner;
ALTER TRIGGER "~~late" ON aud_part RENAME TO sooner;
ALTER TRIGGER "~~own" ON aud_part_1 RENAME TO own;
TABLE audit;

-- observing
SELECT fence.protect('aud_plain', 'aud', mode => 'observe'), fence.protect('aud_both', 'aud-{id}', 'tok', lease => 'postgres', mode => 'observe');
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
-- what repairs something else leaves it observing
SELECT fence.protect('aud_plain', 'aud', mode => 'observe');
DROP TRIGGER "~fence_truncate" ON aud_plain;
SELECT target, problem, remedy FROM audit WHERE problem LIKE '%missing%';
SELECT fence.protect('aud_plain', 'aud');

-- a foreign key that was added: its action runs also where it finds no row
CREATE TABLE aud_top (id int PRIMARY KEY);
INSERT INTO aud_top VALUES (1);
ALTER TABLE aud_plain ADD up int REFERENCES aud_top;
TABLE audit;
ALTER TABLE aud_plain DROP up, ADD up int REFERENCES aud_top ON UPDATE CASCADE;
UPDATE aud_top SET id = 2;
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
UPDATE aud_top SET id = 2;
ALTER TABLE aud_plain DROP up;
DROP TABLE aud_top;
SELECT fence.protect('aud_plain', 'aud');

-- C14: columns that are gone, or of another type
ALTER TABLE aud_row RENAME tok TO token;
ALTER TABLE aud_both ALTER tok TYPE numeric;
ALTER TABLE aud_named DROP name;
TABLE audit;
SELECT fence.protect('aud_row', 'aud-{id}', 'token', 'row');
ALTER TABLE aud_both ALTER tok TYPE bigint;
SELECT fence.protect('aud_named', 'aud-{id}');
TABLE audit;
-- arguments that nobody understands
CREATE TABLE aud_odd (id int);
CREATE TRIGGER hand AFTER INSERT OR UPDATE OR DELETE ON aud_odd FOR EACH STATEMENT EXECUTE FUNCTION fence.guard('resource=r', 'colour=red');
CREATE TRIGGER hand_truncate BEFORE TRUNCATE ON aud_odd FOR EACH STATEMENT EXECUTE FUNCTION fence.guard('resource=r', 'colour=red');
TABLE audit;
DROP TABLE aud_odd;
-- on what is no table
CREATE VIEW aud_view AS TABLE aud_plain;
CREATE TRIGGER hand INSTEAD OF UPDATE ON aud_view FOR EACH ROW EXECUTE FUNCTION fence.guard('resource=aud');
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
DROP VIEW aud_view;

-- C24: stored tokens above the mark, in tables and partitions; one row for each resource
SET pg_fence.bypass = on;
INSERT INTO aud_both VALUES (2, 1, 30), (3, 1, 31), (4, 1, NULL);
INSERT INTO aud_part VALUES (1, 32), (1, 33), (1, 4);
RESET pg_fence.bypass;
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
SELECT fence.mark('aud-2'), fence.mark('aud-3'), fence.mark('aud-part');
-- of a table with marks => 'row' the rows themselves are the marks
SET pg_fence.bypass = on;
INSERT INTO aud_row VALUES (7, 1, 70);
RESET pg_fence.bypass;
TABLE audit;
-- a resource whose name has quotes
ALTER TABLE aud_both ADD shelf text DEFAULT $$it's "aud"$$;
SELECT fence.protect('aud_both', 'aud {shelf}', 'tok');
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;

-- an owner who can log in
ALTER TABLE aud_both OWNER TO "regress_fence Login";
TABLE audit;
ALTER TABLE aud_both OWNER TO regress_fence_aud;
TABLE audit;
GRANT regress_fence_aud TO regress_fence_group;
GRANT regress_fence_group TO "regress_fence Login";
TABLE audit;
REVOKE regress_fence_aud FROM regress_fence_group;
TABLE audit;
ALTER TABLE aud_part_1 OWNER TO "regress_fence Login";
TABLE audit;
ALTER TABLE aud_part_1 OWNER TO regress_fence_aud;
TABLE audit;

-- rights on our tables
GRANT SELECT, UPDATE ON fence.resource TO regress_fence_aud;
GRANT INSERT ON fence.resource TO PUBLIC;
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
GRANT UPDATE (mark), SELECT (name) ON fence.resource TO "regress_fence Login";
SELECT target, severity, count(*) FROM audit GROUP BY 1, 2;
SELECT remedy FROM audit ORDER BY 1 \gexec
TABLE audit;
GRANT CREATE ON SCHEMA fence TO regress_fence_aud;
SELECT severity, remedy FROM audit;
SELECT remedy FROM audit \gexec
TABLE audit;
GRANT pg_write_all_data TO regress_fence_aud;
SELECT severity, remedy FROM audit;
SELECT remedy FROM audit \gexec
TABLE audit;
-- ... through another role
GRANT pg_write_all_data TO regress_fence_group;
TABLE audit;
SELECT DISTINCT remedy FROM audit \gexec
TABLE audit;
BEGIN;
ALTER TABLE fence.resource OWNER TO "regress_fence Login";
SELECT severity FROM audit;
ROLLBACK;
BEGIN;
ALTER TABLE fence.resource SET UNLOGGED;
SELECT target, severity, remedy FROM audit;
SELECT remedy FROM audit \gexec
TABLE audit;
ROLLBACK;

-- settings of roles, and of roles in this database
ALTER ROLE regress_fence_aud SET synchronous_commit = off;
ALTER ROLE "regress_fence Login" SET pg_fence.bypass = on;
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
ALTER ROLE regress_fence_aud SET pg_fence.bypass = 'Yes';
ALTER ROLE "regress_fence Login" SET synchronous_commit = 'OFF';
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
ALTER ROLE "regress_fence Login" SET session_replication_role = replica;
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
ALTER ROLE regress_fence_aud SET pg_fence.bypass = off;
ALTER ROLE regress_fence_aud SET synchronous_commit = local;
TABLE audit;
ALTER ROLE regress_fence_aud RESET ALL;
DO $$
BEGIN
	EXECUTE format('ALTER ROLE regress_fence_aud IN DATABASE %I SET pg_fence.bypass = on', current_database());
	EXECUTE format('ALTER ROLE regress_fence_aud IN DATABASE %I SET synchronous_commit = off', current_database());
END
$$;
SELECT target, severity, problem, replace(remedy, quote_ident(current_database()), 'THIS') AS remedy FROM audit;
SELECT set_config('aud.remedies', string_agg(remedy, ' '), false) <> '' AS run FROM audit;
DO $$ BEGIN EXECUTE current_setting('aud.remedies'); END $$;
TABLE audit;
-- ... of the database, of all roles; of this session
CREATE VIEW audit_settings AS
	SELECT severity, replace(remedy, quote_ident(current_database()), 'THIS') AS remedy FROM fence.audit() WHERE target IS NULL AND remedy ~ 'synchronous_commit|bypass'
	ORDER BY remedy COLLATE "C";
TABLE audit_settings;
BEGIN;
DO $$
BEGIN
	EXECUTE format('ALTER DATABASE %I SET pg_fence.bypass = on', current_database());
	EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database());
END
$$;
TABLE audit_settings;
ROLLBACK;
BEGIN;
ALTER ROLE ALL SET pg_fence.bypass = on;
ALTER ROLE ALL SET synchronous_commit = off;
TABLE audit_settings;
ALTER ROLE ALL RESET pg_fence.bypass;
ALTER ROLE ALL RESET synchronous_commit;
TABLE audit_settings;
ROLLBACK;
BEGIN;
SET LOCAL synchronous_commit = off;
SELECT count(*) FROM audit_settings;
SET LOCAL synchronous_commit = on;
SET LOCAL pg_fence.bypass = on;
SELECT count(*) FROM audit_settings;
ROLLBACK;
TABLE audit_settings;

-- leases held for more than a day
UPDATE fence.resource SET acquired_at = clock_timestamp() - interval '25 hours' WHERE name = 'aud';
UPDATE fence.resource SET acquired_at = clock_timestamp() - interval '23 hours' WHERE name = 'aud-1';
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
SELECT state FROM fence.leases WHERE resource = 'aud';
-- run out is not held
UPDATE fence.resource SET acquired_at = clock_timestamp() - interval '25 hours', expires_at = clock_timestamp() WHERE name = 'aud-1';
TABLE audit;

-- by somebody who was granted it, and by somebody who was not
GRANT USAGE ON SCHEMA fence TO regress_fence_aud;
GRANT SELECT ON audit TO regress_fence_aud;
SET ROLE regress_fence_aud;
SELECT refusal('SELECT count(*) FROM fence.audit()');
RESET ROLE;
GRANT EXECUTE ON FUNCTION fence.audit() TO regress_fence_aud;
ALTER TABLE aud_plain DISABLE TRIGGER "~fence_statement";
SET ROLE regress_fence_aud;
SELECT target, severity, problem FROM fence.audit() WHERE target = 'aud_plain'::regclass;
RESET ROLE;
ALTER TABLE aud_plain ENABLE TRIGGER "~fence_statement";
-- whatever the search_path, and with names that need quotes
CREATE SCHEMA "Aud it";
CREATE TABLE "Aud it"."T'x" (id int, "to ""k" bigint);
SELECT fence.protect('"Aud it"."T''x"', 'aud-"odd"-{id}', 'to "k');
ALTER TABLE "Aud it"."T'x" DISABLE TRIGGER "~fence_truncate";
DROP TRIGGER "~fence_after_write" ON "Aud it"."T'x";
SET search_path = "Aud it";
SELECT severity, remedy FROM fence.audit() WHERE target = '"T''x"'::pg_catalog.regclass ORDER BY remedy COLLATE pg_catalog."C";
SELECT remedy FROM fence.audit() WHERE target = '"T''x"'::pg_catalog.regclass ORDER BY remedy COLLATE pg_catalog."C" \gexec
SELECT count(*) FROM fence.audit() WHERE target = '"T''x"'::pg_catalog.regclass;
RESET search_path;
-- a table that is dropped meanwhile has no problem any more
SELECT fence.policy_problem(2147483647::oid::regclass, 'resource=aud') IS NULL AS none;
-- it writes nothing and leaves no lock
BEGIN;
SELECT count(*) > 0 AS some FROM fence.protected_tables, fence.audit();
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
ROLLBACK;
BEGIN READ ONLY;
SELECT count(*) FROM audit;
COMMIT;

DROP SCHEMA "Aud it" CASCADE;
DROP VIEW audit_settings, audit;
DROP TABLE aud_plain, aud_named, aud_row, aud_both, aud_fk, aud_part, aud_parent, aud_child CASCADE;
DROP FUNCTION aud_fn();
DROP OWNED BY regress_fence_aud, "regress_fence Login";
DROP ROLE regress_fence_aud, regress_fence_group, "regress_fence Login";
