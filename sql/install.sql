-- Installation: who may install and where, what a fresh install contains, that
-- it is documented, and that nothing of it is open to everybody.
--
-- Comes first: the other files need the extension and the function made here.
-- Field cases: F02 F03 G03 G04 G07 G09
\set VERBOSITY sqlstate

-- G09: another schema
CREATE SCHEMA regress_elsewhere;
CREATE EXTENSION pg_fence SCHEMA regress_elsewhere;
DROP SCHEMA regress_elsewhere;

-- a schema that somebody else has prepared
CREATE ROLE regress_fence_squatter;
CREATE SCHEMA fence AUTHORIZATION regress_fence_squatter;
CREATE EXTENSION pg_fence;
DROP SCHEMA fence;

-- G07: a role that may create schemas, but is no superuser
DO $$
BEGIN
	EXECUTE format('GRANT CREATE ON DATABASE %I TO regress_fence_squatter', current_database());
END
$$;
SET ROLE regress_fence_squatter;
CREATE EXTENSION pg_fence;
RESET ROLE;
DROP OWNED BY regress_fence_squatter;

-- a schema in which somebody else may create things
BEGIN;
CREATE SCHEMA fence;
GRANT CREATE ON SCHEMA fence TO regress_fence_squatter;
CREATE EXTENSION pg_fence;
ROLLBACK;
BEGIN;
CREATE SCHEMA fence;
GRANT ALL ON SCHEMA fence TO PUBLIC;
CREATE EXTENSION pg_fence;
ROLLBACK;
DROP ROLE regress_fence_squatter;

-- a schema of a superuser's own is as good as none
BEGIN;
CREATE SCHEMA fence;
CREATE EXTENSION pg_fence;
ROLLBACK;

CREATE EXTENSION pg_fence;
CREATE EXTENSION pg_fence;
ALTER EXTENSION pg_fence SET SCHEMA public;

SELECT n.nspname, e.extrelocatable
FROM pg_extension e
	JOIN pg_namespace n ON n.oid = e.extnamespace
WHERE e.extname = 'pg_fence';

-- What it consists of.  Later servers also count the row types of tables in.
CREATE TEMPORARY VIEW member AS
	SELECT d.classid, d.objid, o.type, o.identity
	FROM pg_depend d
		JOIN pg_extension e ON e.oid = d.refobjid,
		pg_identify_object(d.classid, d.objid, 0) o
	WHERE d.refclassid = 'pg_extension'::regclass
		AND d.deptype = 'e' AND e.extname = 'pg_fence'
		AND (d.classid <> 'pg_type'::regclass OR EXISTS (
			SELECT FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid
			WHERE t.oid = d.objid AND c.relkind = 'c'));
SELECT type, identity FROM member ORDER BY type COLLATE "C", identity COLLATE "C";

-- everything else in the schema belongs to one of these
SELECT c.relname, c.relkind
FROM pg_class c
WHERE c.relnamespace = 'fence'::regnamespace AND c.relkind NOT IN ('c', 'i', 't')
	AND NOT EXISTS (SELECT FROM member m WHERE m.classid = 'pg_class'::regclass AND m.objid = c.oid);

-- without a comment: nothing
SELECT type, identity FROM member WHERE obj_description(objid, classid::regclass::name) IS NULL;
SELECT a.attname
FROM pg_attribute a
	JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = a.attrelid
	JOIN pg_class c ON c.oid = a.attrelid
WHERE c.relkind = 'r' AND a.attnum > 0 AND col_description(a.attrelid, a.attnum) IS NULL;

-- Volatility, strictness, parallel safety: whatever judges or writes is
-- volatile and unsafe, and NULL is no way around it.
SELECT p.oid::regprocedure::text COLLATE "C" AS function, p.provolatile AS volatile,
	p.proparallel AS parallel, p.proisstrict AS strict
FROM pg_proc p
	JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
ORDER BY 1;

-- no function runs as its owner with the caller's search_path
SELECT p.oid::regprocedure
FROM pg_proc p
	JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
	JOIN pg_language l ON l.oid = p.prolang
WHERE (p.prosecdef OR l.lanname <> 'c')
	AND NOT EXISTS (SELECT FROM unnest(p.proconfig) s WHERE s LIKE 'search_path=%');

-- Privileges of anybody but the owner: pg_monitor reads the views.
SELECT object COLLATE "C", CASE WHEN grantee = 0 THEN 'PUBLIC' ELSE grantee::regrole::text END AS grantee,
	privilege_type
FROM (
	SELECT 'schema fence' AS object, nspowner AS owner, coalesce(nspacl, acldefault('n', nspowner)) AS acl
	FROM pg_namespace WHERE nspname = 'fence'
	UNION ALL
	SELECT p.oid::regprocedure::text, p.proowner, coalesce(p.proacl, acldefault('f', p.proowner))
	FROM pg_proc p JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
	UNION ALL
	SELECT t.oid::regtype::text, t.typowner, coalesce(t.typacl, acldefault('T', t.typowner))
	FROM pg_type t JOIN member m ON m.classid = 'pg_type'::regclass AND m.objid = t.oid
	UNION ALL
	SELECT c.oid::regclass::text, c.relowner, coalesce(c.relacl, acldefault('r', c.relowner))
	FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
	UNION ALL
	SELECT a.attrelid::regclass || '.' || a.attname, c.relowner, a.attacl
	FROM pg_attribute a
		JOIN pg_class c ON c.oid = a.attrelid
		JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
) o, aclexplode(o.acl) x
WHERE x.grantee <> o.owner
ORDER BY 1, 2, 3;

-- F03: no timestamp without time zone, in tables, views and functions
SELECT a.attrelid::regclass, a.attname
FROM pg_attribute a
	JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = a.attrelid
WHERE a.atttypid IN ('timestamp'::regtype, 'timestamp[]'::regtype);
SELECT p.oid::regprocedure
FROM pg_proc p
	JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
WHERE 'timestamp'::regtype = p.prorettype OR 'timestamp'::regtype = ANY (p.proargtypes)
	OR 'timestamp'::regtype = ANY (p.proallargtypes);

-- F02: no function takes an instant from a client
SELECT p.oid::regprocedure
FROM pg_proc p
	JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
WHERE 'timestamptz'::regtype = ANY (p.proargtypes);

-- G03: tables are logged and dumped; G04: and begin empty
SELECT c.oid::regclass AS "table", c.relpersistence,
	(SELECT quote_literal(condition)
	 FROM pg_extension e, unnest(e.extconfig, e.extcondition) AS x (relation, condition)
	 WHERE e.extname = 'pg_fence' AND x.relation = c.oid) AS dump_condition
FROM pg_class c
	JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
WHERE c.relkind <> 'v'
ORDER BY c.relname COLLATE "C";
SELECT count(*) FROM fence.resource;

-- resources are compared byte for byte, whatever the collation of the database
SELECT attcollation::regcollation
FROM pg_attribute WHERE attrelid = 'fence.resource'::regclass AND attname = 'name';

-- For the files that follow: runs a command that must fail, and tells the
-- SQLSTATE and which of the given words the error does not contain.
CREATE FUNCTION refusal(command text, VARIADIC words text[] DEFAULT '{}') RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
	state text;
	message text;
	detail text;
	hint text;
	word text;
BEGIN
	EXECUTE command;
	RETURN 'not refused';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT,
		detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
	FOREACH word IN ARRAY words LOOP
		IF strpos(message || ' ' || detail || ' ' || hint, word) = 0 THEN
			state := format('%s without "%s"', state, word);
		END IF;
	END LOOP;
	RETURN state;
END
$$;
SELECT refusal('SELECT 1/0') = '22012' AND refusal('SELECT 1') = 'not refused' AS refusal_works;
