-- Privileges: what a role can do before and after fence.grant_writer(), that an
-- application needs no rights on the tables, and that row security does not
-- hide a mark.  (What PUBLIC has is listed by the file install.)
--
-- Field cases: C20 G07; I67
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET row_security = on;

CREATE ROLE regress_fence_owner;
CREATE ROLE regress_fence_app;
CREATE ROLE regress_fence_monitor;
CREATE ROLE "regress_fence_od""d Role";
GRANT pg_monitor TO regress_fence_monitor;
CREATE SCHEMA priv AUTHORIZATION regress_fence_owner;
GRANT USAGE ON SCHEMA priv TO regress_fence_app;

-- nothing without a grant
SET ROLE regress_fence_app;
SELECT call, refusal('SELECT ' || call)
FROM unnest(ARRAY[
	$$fence.acquire('priv', 'a')$$, $$fence.extend('priv', 1)$$, $$fence.release('priv', 1)$$,
	$$fence.check('priv', 1)$$, $$fence.mark('priv')$$, $$fence.raise_mark('priv', 1)$$,
	$$fence.acquire_many('{priv}', 'a')$$, $$fence.hand_over('priv', 1, 'b')$$,
	$$fence.break_lease('priv')$$, $$fence.evict('priv')$$, $$fence.forget('1 day')$$, $$fence.audit()$$,
	$$fence.policy_problem('pg_class', 'x')$$, $$fence.stored_above_mark('pg_class', 'x')$$, $$fence.guard()$$,
	$$fence.protect('pg_class', 'priv')$$, $$fence.unprotect('pg_class')$$, $$fence.home()$$,
	$$fence.trigger_arguments('x')$$, $$fence.grant_writer('regress_fence_app')$$,
	$$fence.claim('priv')$$, $$fence.complete('priv')$$, $$fence.once('priv')$$, $$fence.claim_many('{priv}')$$, $$fence.lookup('priv')$$,
	$$fence.admit('priv', 1, 'k')$$, $$fence.claim_sequence('priv', 1)$$, $$fence.prune()$$,
	$$* FROM fence.idempotency_key$$, $$* FROM fence.producer$$, $$* FROM fence.keys$$, $$* FROM fence.producers$$, $$* FROM fence.resource$$, $$* FROM fence.leases$$, $$* FROM fence.protected_tables$$]) call;
RESET ROLE;
-- also with the schema alone
GRANT USAGE ON SCHEMA fence TO regress_fence_app;
SET ROLE regress_fence_app;
SELECT refusal($$SELECT fence.check('priv', 1)$$), refusal($$SELECT fence.mark('priv')$$), refusal('TABLE fence.resource');
RESET ROLE;
REVOKE USAGE ON SCHEMA fence FROM regress_fence_app;

SELECT fence.grant_writer('regress_fence_owner'), fence.grant_writer('regress_fence_app');
SELECT fence.grant_writer('"regress_fence_od""d Role"');
SELECT fence.grant_writer('no_such_role');
SELECT refusal('SELECT fence.grant_writer(' || role || ')') FROM unnest('{''-'',0,999999999}'::text[]) role;
-- by somebody to whom this was granted, and who grants it as the owner would
CREATE ROLE regress_fence_delegate;
CREATE ROLE regress_fence_late;
SELECT fence.grant_writer('regress_fence_delegate');
GRANT EXECUTE ON FUNCTION fence.grant_writer(regrole) TO regress_fence_delegate;
SET ROLE regress_fence_delegate;
SELECT fence.grant_writer('regress_fence_late');
RESET ROLE;
SET ROLE regress_fence_late;
SELECT fence.mark('priv') IS NULL AS may, refusal($$SELECT fence.grant_writer('regress_fence_late')$$);
RESET ROLE;
SELECT grantor::regrole::oid = proowner AS from_the_owner FROM pg_proc, aclexplode(proacl)
WHERE pg_proc.oid = 'fence.mark(text)'::regprocedure AND grantee = 'regress_fence_late'::regrole;
DROP OWNED BY regress_fence_delegate, regress_fence_late;
DROP ROLE regress_fence_delegate, regress_fence_late;
SELECT has_schema_privilege('regress_fence_od"d Role', 'fence', 'USAGE') AS usage,
	has_schema_privilege('regress_fence_od"d Role', 'fence', 'CREATE') AS "create";
SELECT p.oid::regprocedure::text COLLATE "C" AS function,
	has_function_privilege('regress_fence_app', p.oid, 'EXECUTE') AS writer,
	has_function_privilege('regress_fence_monitor', p.oid, 'EXECUTE') AS monitor
FROM pg_proc p WHERE pronamespace = 'fence'::regnamespace ORDER BY 1;
SELECT c.relname, p AS privilege, has_table_privilege('regress_fence_app', c.oid, p) AS writer,
	has_table_privilege('regress_fence_monitor', c.oid, p) AS monitor
FROM pg_class c, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE}'::text[]) WITH ORDINALITY AS u (p, n)
WHERE c.relnamespace = 'fence'::regnamespace AND c.relkind IN ('r', 'v', 'p') ORDER BY c.relname COLLATE "C", n;

-- an application
SET ROLE regress_fence_app;
SELECT acquired, token, held_by FROM fence.acquire('priv', 'app', '1 hour');
SELECT extended FROM fence.extend('priv', 1);
SELECT fence.check('priv', 1, 'app', 'postgres'), fence.mark('priv');
SELECT acquired, token, held_by FROM fence.hand_over('priv', 1, 'app-2', '1 hour');
SELECT fence.release('priv', 2);
SELECT resource, acquired, token FROM fence.acquire_many('{priv-2,priv-1}', 'app', '1 hour');
BEGIN;
SELECT fresh FROM fence.claim('priv', 'app', '{"n": 1}', '1 hour');
SELECT fence.complete('priv', '"done"', 'app'), fence.once('priv-once', 'app');
SELECT * FROM fence.claim_many('{priv-2,priv-1}', 'app');
SELECT fence.complete('priv-1', scope => 'app'), fence.complete('priv-2', scope => 'app');
COMMIT;
SELECT fresh, response FROM fence.claim('priv', 'app', '{"n": 1}');
SELECT response FROM fence.lookup('priv', 'app');
SELECT fence.claim_sequence('priv', 1);
SELECT refusal($$SELECT fence.admit('priv', 1, 'k')$$);
SELECT call, refusal(call)
FROM unnest(ARRAY['TABLE fence.idempotency_key', 'DELETE FROM fence.idempotency_key', 'UPDATE fence.idempotency_key SET response = NULL',
	'TRUNCATE fence.idempotency_key', 'TABLE fence.producer', 'UPDATE fence.producer SET last = 0', 'TABLE fence.keys', 'TABLE fence.producers',
	'SELECT fence.prune()', 'SET pg_fence.max_response = 1', 'TABLE fence.resource', 'DELETE FROM fence.resource', 'UPDATE fence.resource SET mark = 0',
	'INSERT INTO fence.resource (name) VALUES (''x'')', 'TRUNCATE fence.resource', 'TABLE fence.leases', 'TABLE fence.protected_tables',
	'SELECT fence.raise_mark(''priv'', 9)', 'SELECT fence.break_lease(''priv'')', 'SELECT fence.evict(''priv'')',
	'SELECT fence.forget(''1 day'')', 'SELECT fence.audit()', 'SET pg_fence.bypass = on', 'SELECT fence.grant_writer(''regress_fence_app'')', 'SELECT fence.home()',
	'CREATE TABLE fence.mine (i int)', 'LOCK TABLE fence.resource IN ACCESS SHARE MODE',
	'ALTER TABLE fence.resource DISABLE TRIGGER ALL', 'DROP EXTENSION pg_fence CASCADE']) call;
RESET ROLE;

-- G07: protect() is for the owner of the table
SET ROLE regress_fence_owner;
CREATE TABLE priv.stock (id int PRIMARY KEY, qty int, tok bigint);
INSERT INTO priv.stock VALUES (1, 1, 5);
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER ON priv.stock TO regress_fence_app;
SET ROLE regress_fence_app;
SELECT refusal($$SELECT fence.protect('priv.stock', 'mine')$$, 'stock'), refusal($$SELECT fence.unprotect('priv.stock')$$, 'stock');
SELECT refusal($$SELECT fence.protect('pg_class', 'mine')$$), refusal($$SELECT fence.protect('fence.resource', 'mine')$$);
SET ROLE regress_fence_owner;
SELECT fence.protect('priv.stock', 'priv-stock', 'tok');
SET ROLE regress_fence_app;
SELECT refusal($$SELECT fence.unprotect('priv.stock')$$);
UPDATE priv.stock SET qty = 2;
UPDATE priv.stock SET qty = 2, tok = 4;
UPDATE priv.stock SET qty = 2, tok = 6;
UPDATE priv.stock SET qty = 3 WHERE fence.check('priv-stock', 6);
INSERT INTO priv.stock VALUES (2, 2, 5);
INSERT INTO priv.stock VALUES (2, 2, 6);
TRUNCATE priv.stock;
SELECT * FROM priv.stock ORDER BY id;
-- the table's owner is not the extension's: he is judged like anybody else
SET ROLE regress_fence_owner;
UPDATE priv.stock SET qty = 4;
UPDATE priv.stock SET qty = 4, tok = 6 WHERE id = 2;
-- and can take the guard away again
SELECT fence.protect('priv.stock', 'priv-stock'), fence.unprotect('priv.stock'), fence.unprotect('priv.stock');
SELECT fence.protect('priv.stock', 'priv-stock', 'tok');
RESET ROLE;
-- a superuser may do it for others
SELECT fence.protect('priv.stock', 'priv-stock', 'tok', 'both');
-- with SECURITY DEFINER, the owner of the function counts
SET ROLE regress_fence_owner;
CREATE FUNCTION priv.set_qty(q int) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = priv, pg_temp AS
	'UPDATE priv.stock SET qty = q';
SET ROLE regress_fence_app;
SELECT priv.set_qty(7);
BEGIN;
SELECT fence.check('priv-stock', 6);
SELECT priv.set_qty(7);
COMMIT;
SELECT * FROM priv.stock ORDER BY id;

-- columns: a role that may not read the token column, or write it
RESET ROLE;
REVOKE ALL ON priv.stock FROM regress_fence_app;
GRANT SELECT (id, qty), UPDATE (qty), INSERT (id, qty) ON priv.stock TO regress_fence_app;
SET ROLE regress_fence_app;
UPDATE priv.stock SET qty = 8;
UPDATE priv.stock SET qty = 8, tok = 7;
BEGIN;
SELECT fence.check('priv-stock', 7);
UPDATE priv.stock SET qty = 8 WHERE id = 1;
INSERT INTO priv.stock (id, qty) VALUES (3, 8);
COMMIT;
RESET ROLE;
SELECT * FROM priv.stock ORDER BY id;
-- what an error tells of a row is what the role may read
SELECT fence.protect('priv.stock', 'priv-stock', 'tok', 'row');
GRANT UPDATE (tok) ON priv.stock TO regress_fence_app;
SET ROLE regress_fence_app;
SELECT refusal('UPDATE priv.stock SET qty = 9, tok = 1 WHERE id = 3', '(id)=(3)');
RESET ROLE;
REVOKE SELECT ON priv.stock FROM regress_fence_app;
REVOKE SELECT (id) ON priv.stock FROM regress_fence_app;
SET ROLE regress_fence_app;
SELECT refusal('UPDATE priv.stock SET qty = 9, tok = 1', '(id)=');
RESET ROLE;

-- C20: row security, on the protected table and on our own
GRANT ALL ON priv.stock TO regress_fence_app;
SELECT fence.protect('priv.stock', 'priv-stock', 'tok', 'both');
ALTER TABLE priv.stock ENABLE ROW LEVEL SECURITY;
CREATE POLICY visible ON priv.stock TO regress_fence_app USING (id = 1);
SET ROLE regress_fence_app;
UPDATE priv.stock SET qty = 10;
UPDATE priv.stock SET qty = 10, tok = 6;
UPDATE priv.stock SET qty = 10, tok = 7;
RESET ROLE;
SELECT * FROM priv.stock ORDER BY id;
BEGIN ISOLATION LEVEL READ COMMITTED;
GRANT ALL ON fence.resource TO regress_fence_app;
ALTER TABLE fence.resource ENABLE ROW LEVEL SECURITY;
ALTER TABLE fence.resource FORCE ROW LEVEL SECURITY;
CREATE POLICY nothing ON fence.resource USING (false) WITH CHECK (false);
SET LOCAL ROLE regress_fence_app;
SELECT count(*) FROM fence.resource;
SELECT fence.mark('priv-stock');
SAVEPOINT s;
SELECT fence.check('priv-stock', 6);
ROLLBACK TO s;
UPDATE priv.stock SET qty = 11, tok = 1;
ROLLBACK TO s;
UPDATE priv.stock SET qty = 11, tok = 8;
SELECT fence.mark('priv-stock');
SELECT acquired, token FROM fence.acquire('priv', 'app', '1 hour');
SELECT fence.check('priv-new', 1), fence.mark('priv-new');
SET LOCAL row_security = off;
SELECT fence.mark('priv-stock');
ROLLBACK;
BEGIN ISOLATION LEVEL READ COMMITTED;
GRANT ALL ON fence.idempotency_key, fence.producer TO regress_fence_app;
ALTER TABLE fence.idempotency_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE fence.idempotency_key FORCE ROW LEVEL SECURITY;
CREATE POLICY nothing ON fence.idempotency_key USING (false) WITH CHECK (false);
ALTER TABLE fence.producer ENABLE ROW LEVEL SECURITY;
ALTER TABLE fence.producer FORCE ROW LEVEL SECURITY;
CREATE POLICY nothing ON fence.producer USING (false) WITH CHECK (false);
SET LOCAL ROLE regress_fence_app;
SELECT count(*) FROM fence.idempotency_key;
SELECT fresh, response FROM fence.claim('priv', 'app', '{"n": 1}');
SELECT response FROM fence.lookup('priv', 'app');
SELECT fence.once('priv-once', 'app'), fence.once('priv-rls', 'app');
SELECT fence.claim_sequence('priv', 1), fence.claim_sequence('priv', 2);
SET LOCAL row_security = off;
SELECT fence.once('priv-rls', 'app');
ROLLBACK;
-- nor do triggers on our tables see anything
BEGIN;
CREATE FUNCTION hostile() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER hostile BEFORE INSERT OR UPDATE OR DELETE ON fence.idempotency_key FOR EACH ROW EXECUTE FUNCTION hostile();
SELECT fence.once('priv-trigger', 'app');
SELECT fence.once('priv-trigger', 'app');
ROLLBACK;
-- nor does it matter what rights the owner has left himself
BEGIN;
REVOKE ALL ON fence.resource FROM CURRENT_USER;
SET LOCAL ROLE regress_fence_app;
SELECT fence.check('priv-stock', 7), fence.mark('priv-stock');
SELECT fence.check('priv-stock', 6);
ROLLBACK;

-- the monitoring role reads
SET ROLE regress_fence_monitor;
SELECT state FROM fence.leases WHERE resource = 'priv';
SELECT scope, key FROM fence.keys WHERE key = 'priv-once';
SELECT producer, last FROM fence.producers WHERE producer = 'priv';
TABLE fence.idempotency_key;
TABLE fence.producer;
SELECT target, token_column FROM fence.protected_tables WHERE resource = 'priv-stock';
SELECT refusal('TABLE fence.resource'), refusal($$SELECT fence.mark('priv')$$), refusal($$SELECT fence.check('priv', 1)$$);
RESET ROLE;

-- granted by hand: one function
GRANT USAGE ON SCHEMA fence TO regress_fence_monitor;
GRANT EXECUTE ON FUNCTION fence.raise_mark(text, bigint), fence.break_lease(text), fence.evict(text), fence.forget(interval, integer), fence.audit()
	TO regress_fence_monitor;
SET ROLE regress_fence_monitor;
SELECT fence.raise_mark('priv', 10), fence.break_lease('priv-1'), fence.evict('priv'), fence.forget('100 years');
SELECT count(*) FROM fence.audit() WHERE target::text LIKE 'priv.%' OR problem LIKE '%regress_fence_app%';
SELECT refusal($$SELECT fence.acquire('priv', 'a')$$), refusal($$SELECT fence.policy_problem('pg_class', 'x')$$), refusal('TABLE fence.resource');
RESET ROLE;

DROP SCHEMA priv CASCADE;
DROP OWNED BY regress_fence_owner, regress_fence_app, regress_fence_monitor, "regress_fence_od""d Role";
DROP ROLE regress_fence_owner, regress_fence_app, regress_fence_monitor, "regress_fence_od""d Role";
