-- A hostile search_path: functions, operators, casts and tables that somebody
-- planted in front of pg_catalog record when they run.  None of them does.
--
-- Field cases: G06; I67
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE ROLE regress_fence_victim SUPERUSER;
CREATE ROLE regress_fence_attacker;
CREATE SCHEMA hostile AUTHORIZATION regress_fence_attacker;
SELECT fence.grant_writer('regress_fence_attacker');

SET ROLE regress_fence_attacker;
CREATE SEQUENCE hostile.hits;
CREATE FUNCTION hostile.hit() RETURNS void LANGUAGE sql AS $$ SELECT pg_catalog.nextval('hostile.hits') $$;
-- tables and views by the names of ours and of the catalog's
CREATE TABLE hostile.resource (name text, token bigint, mark bigint);
CREATE TABLE hostile.leases (resource text);
CREATE TABLE hostile.pg_trigger (tgrelid oid);
CREATE TABLE hostile.pg_namespace (nspname name, nspowner oid);
CREATE TABLE hostile.pg_roles (rolname name);
-- operators that our SQL and C could be tempted to use
CREATE FUNCTION hostile.says_true(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM hostile.hit(); RETURN true; END';
CREATE FUNCTION hostile.says_true(text, text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM hostile.hit(); RETURN true; END';
CREATE FUNCTION hostile.says_true(timestamptz, timestamptz) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM hostile.hit(); RETURN true; END';
CREATE FUNCTION hostile.says_true(oid, oid) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM hostile.hit(); RETURN true; END';
CREATE FUNCTION hostile.says_true("char", "char") RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM hostile.hit(); RETURN true; END';
CREATE FUNCTION hostile.says_true(name, name) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM hostile.hit(); RETURN true; END';
CREATE FUNCTION hostile.says_true(smallint, smallint) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM hostile.hit(); RETURN true; END';
DO $$
DECLARE
	op text;
	t text;
BEGIN
	FOREACH op IN ARRAY '{=,<>,<,>,<=,>=}'::text[] LOOP
		FOREACH t IN ARRAY ARRAY['bigint', 'text', 'timestamptz', 'oid', '"char"', 'name', 'smallint'] LOOP
			EXECUTE format('CREATE OPERATOR hostile.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = hostile.says_true)', op, t, t);
		END LOOP;
	END LOOP;
END
$$;
CREATE FUNCTION hostile.minus(timestamptz, timestamptz) RETURNS interval LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN '1 year'::interval; END $$;
CREATE OPERATOR hostile.- (LEFTARG = timestamptz, RIGHTARG = timestamptz, FUNCTION = hostile.minus);
CREATE FUNCTION hostile.get(jsonb, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN 'fake'; END $$;
CREATE OPERATOR hostile.->> (LEFTARG = jsonb, RIGHTARG = text, FUNCTION = hostile.get);
CREATE FUNCTION hostile.plus(integer, integer) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN 1; END $$;
CREATE OPERATOR hostile.+ (LEFTARG = integer, RIGHTARG = integer, FUNCTION = hostile.plus);
-- functions
CREATE FUNCTION hostile.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN '2000-01-01'::timestamptz; END $$;
CREATE FUNCTION hostile.now() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN '2000-01-01'::timestamptz; END $$;
CREATE FUNCTION hostile.format(text, anyelement) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN 'SELECT 1'; END $$;
CREATE FUNCTION hostile.split_part(text, text, integer) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN 'fake'; END $$;
CREATE FUNCTION hostile.substr(text, integer) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN 'fake'; END $$;
CREATE FUNCTION hostile.strpos(text, text) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN 1; END $$;
CREATE FUNCTION hostile.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN NEXT 'fake'; END $$;
CREATE FUNCTION hostile.guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN NEW; END $$;
CREATE FUNCTION hostile.home() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN 1; END $$;
CREATE FUNCTION hostile.trigger_arguments(bytea) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN PERFORM hostile.hit(); RETURN '{}'; END $$;
-- a domain and a type by the names of types that we use
CREATE DOMAIN hostile.text AS pg_catalog.text CHECK (hostile.says_true(VALUE, VALUE));
CREATE DOMAIN hostile.bigint AS pg_catalog.int8 CHECK (VALUE > 0);
CREATE DOMAIN hostile.regclass AS pg_catalog.regclass;
GRANT USAGE ON SCHEMA hostile TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA hostile TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA hostile TO PUBLIC;

CREATE TABLE hostile.stock (id text, qty int, tok int8);
INSERT INTO hostile.stock VALUES ('1', 1, 1), ('2', 2, 1);
RESET ROLE;
-- they do run when they are called
SELECT hostile.says_true('a'::text, 'b'::text), '2020-01-01'::timestamptz OPERATOR(hostile.>) '2030-01-01'::timestamptz;
SELECT last_value AS before FROM hostile.hits \gset
SELECT :before > 1 AS they_work;

-- a superuser with that search_path calls everything
SET ROLE regress_fence_victim;
SET search_path = hostile, pg_catalog, pg_temp;
SELECT acquired, token FROM fence.acquire('hostile', 'a', '01:00:00');
SELECT acquired, token, reason FROM fence.acquire('hostile', 'b', '01:00:00');
SELECT extended FROM fence.extend('hostile', 1, '01:30:00');
SELECT fence.check('hostile', 1, 'a', 'postgres');
SELECT fence.check('hostile', 2);
SELECT fence.mark('hostile');
SELECT state FROM fence.leases ORDER BY acquired_at DESC LIMIT 1;
SELECT fence.release('hostile', 1);
SELECT fence.raise_mark('hostile', 2);
SELECT resource, acquired, token, reason FROM fence.acquire_many('{hostile-b,hostile-a}', 'a', '01:00:00');
SELECT acquired, token FROM fence.hand_over('hostile-a', 1, 'b', '01:00:00');
SELECT fence.break_lease('hostile-a'), fence.evict('hostile-a'), fence.forget('100 years');
SELECT fresh FROM fence.claim('hostile', request => '{"n": 1}');
BEGIN;
SELECT fresh FROM fence.claim('hostile', request => '{"n": 1}');
SELECT fence.complete('hostile', '"done"');
COMMIT;
SELECT fresh, response FROM fence.claim('hostile', request => '{"n": 1.0}');
SELECT fence.once('hostile-once'), response FROM fence.lookup('hostile');
SELECT key, fresh FROM fence.claim_many('{hostile-once,hostile-once}');
SELECT fence.claim_sequence('hostile', 1), fence.prune();
BEGIN;
SELECT fresh FROM fence.admit('hostile', 2, 'hostile');
SELECT fence.complete('hostile', scope => 'hostile');
COMMIT;
SELECT key FROM fence.keys WHERE key OPERATOR(pg_catalog.=) 'hostile-once';
SELECT last FROM fence.producers WHERE producer OPERATOR(pg_catalog.=) 'hostile';
SELECT fence.protect('hostile.stock', 'hostile-{id}', key_column => 'id', on_duplicate => 'skip');
SELECT key_column, key_scope, on_duplicate FROM fence.protected_tables WHERE target OPERATOR(pg_catalog.=) 'hostile.stock'::pg_catalog.regclass;
INSERT INTO stock VALUES ('3', 3, 1);
SELECT fence.unprotect('hostile.stock');
SELECT fence.home() IS NOT NULL, fence.trigger_arguments('a\000b\000');
SELECT fence.grant_writer('regress_fence_victim');
SELECT fence.protect('hostile.stock', 'hostile-{id}', 'tok');
SELECT tgfoid::pg_catalog.regprocedure, pg_catalog.count(*) FROM pg_catalog.pg_trigger WHERE tgrelid OPERATOR(pg_catalog.=) 'hostile.stock'::pg_catalog.regclass GROUP BY 1;
SELECT resource, token_column, marks FROM fence.protected_tables ORDER BY target DESC LIMIT 1;
INSERT INTO stock VALUES ('3', 3, 1);
UPDATE stock SET qty = 4;
UPDATE stock SET qty = 4, tok = 2;
UPDATE stock SET qty = 5, tok = 1;
COPY stock FROM stdin;
4	4	1
\.
MERGE INTO stock s USING (VALUES ('9')) v (i) ON false WHEN NOT MATCHED THEN INSERT VALUES (v.i, 1, 1);
SELECT fence.protect('hostile.stock', 'hostile', 'tok', 'row');
UPDATE stock SET qty = 4, tok = 1;
UPDATE stock SET qty = 4, tok = 3;
DELETE FROM stock;
SELECT fence.protect('hostile.stock', 'hostile-plain');
DELETE FROM stock;
TRUNCATE stock;
SELECT fence.protect('hostile.stock', 'hostile-{id}', 'tok', mode => 'observe');
UPDATE stock SET qty = 5;
DROP TRIGGER "~fence_truncate" ON hostile.stock;
SELECT severity, remedy FROM fence.audit() WHERE target OPERATOR(pg_catalog.=) 'hostile.stock'::pg_catalog.regclass ORDER BY remedy COLLATE pg_catalog."C";
SELECT mode FROM fence.protected_tables WHERE target OPERATOR(pg_catalog.=) 'hostile.stock'::pg_catalog.regclass;
SELECT fence.unprotect('hostile.stock');
RESET search_path;
RESET ROLE;
SELECT last_value - :before AS hits FROM hostile.hits;
SELECT qty, tok, count(*) FROM hostile.stock GROUP BY qty, tok ORDER BY tok;

-- the same for the installation itself
BEGIN;
SET LOCAL search_path = hostile, pg_catalog;
SET LOCAL client_min_messages = error;
DROP EXTENSION pg_fence CASCADE;
CREATE EXTENSION pg_fence;
RESET search_path;
SELECT last_value - :before AS hits FROM hostile.hits;
ROLLBACK;

-- temporary objects come first of all for types and tables
SET ROLE regress_fence_attacker;
CREATE TEMPORARY TABLE resource (name text, token bigint, mark bigint);
CREATE TEMPORARY TABLE leases (resource text);
CREATE TEMPORARY TABLE idempotency_key (id uuid PRIMARY KEY, scope text, key text);
SELECT fence.once('hostile-temp');
SELECT count(*) FROM idempotency_key;
SELECT acquired, token FROM fence.acquire('hostile-temp', 'a', '01:00:00');
SELECT fence.check('hostile-temp', 1);
SELECT count(*) FROM resource;
RESET ROLE;
SELECT fence.mark('hostile-temp');

DROP SCHEMA hostile CASCADE;
DROP OWNED BY regress_fence_victim, regress_fence_attacker;
DROP ROLE regress_fence_victim, regress_fence_attacker;
