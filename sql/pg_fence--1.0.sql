/* sql/pg_fence--1.0.sql */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pg_fence" to load this file. \quit

-- The owner of a schema may drop and replace what is in it, and who may
-- create in it can add overloads.  A schema that was made beforehand must not
-- leave that to others.
DO $$
BEGIN
	IF EXISTS (SELECT
			FROM pg_catalog.pg_namespace n
				JOIN pg_catalog.pg_roles r
					ON r.oid OPERATOR(pg_catalog.=) n.nspowner
			WHERE n.nspname OPERATOR(pg_catalog.=) 'fence'
				AND NOT r.rolsuper
				AND r.rolname OPERATOR(pg_catalog.<>) CURRENT_USER)
		OR EXISTS (SELECT
			FROM pg_catalog.pg_namespace n
				CROSS JOIN LATERAL pg_catalog.aclexplode(n.nspacl) a
			WHERE n.nspname OPERATOR(pg_catalog.=) 'fence'
				AND a.privilege_type OPERATOR(pg_catalog.=) 'CREATE'
				AND a.grantee OPERATOR(pg_catalog.<>) n.nspowner)
	THEN
		RAISE insufficient_privilege USING
			MESSAGE = 'other roles can create objects in schema "fence"',
			DETAIL = 'They could replace the functions of pg_fence.',
			HINT = 'Drop the schema, or give it to a superuser and revoke CREATE from others.';
	END IF;
END
$$;

--
-- Storage
--

-- One row per resource.  The only index is on the name, and pages keep room:
-- what acquire(), extend() and release() write are HOT updates.
CREATE TABLE fence.resource (
	name text COLLATE pg_catalog."C" NOT NULL,
	token bigint NOT NULL,
	mark bigint NOT NULL,
	mark_holder text,
	marked_at timestamptz NOT NULL,
	holder text,
	request_id text,
	acquired_at timestamptz,
	expires_at timestamptz,
	released_at timestamptz,
	renewals bigint NOT NULL,
	home bigint,
	CONSTRAINT resource_pkey PRIMARY KEY (name)
) WITH (fillfactor = 50);

COMMENT ON TABLE fence.resource IS
	'One row per resource: tokens issued, high-water mark, lease. Written by the functions of pg_fence only.';
COMMENT ON COLUMN fence.resource.name IS 'resource, compared byte for byte';
COMMENT ON COLUMN fence.resource.token IS 'last token issued by fence.acquire(), 0 if none was';
COMMENT ON COLUMN fence.resource.mark IS 'high-water mark: the highest token accepted so far';
COMMENT ON COLUMN fence.resource.mark_holder IS 'who acquired or presented that token, if known';
COMMENT ON COLUMN fence.resource.marked_at IS 'since when it is the mark';
COMMENT ON COLUMN fence.resource.holder IS 'last holder of the lease';
COMMENT ON COLUMN fence.resource.request_id IS 'request_id of the acquisition';
COMMENT ON COLUMN fence.resource.acquired_at IS 'when the lease was granted';
COMMENT ON COLUMN fence.resource.expires_at IS 'when it runs out';
COMMENT ON COLUMN fence.resource.released_at IS 'when it was released, NULL if it was not';
COMMENT ON COLUMN fence.resource.renewals IS 'how often it was extended';
COMMENT ON COLUMN fence.resource.home IS
	'the database that granted the lease; in a copy of it the lease is over';

REVOKE ALL ON TABLE fence.resource FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('fence.resource', '');

--
-- Leases and tokens
--

CREATE FUNCTION fence.acquire(
	resource text,
	holder text,
	ttl interval DEFAULT '30 seconds',
	wait interval DEFAULT '0',
	request_id text DEFAULT NULL,
	lease text DEFAULT 'postgres',
	OUT acquired boolean,
	OUT token bigint,
	OUT expires_at timestamptz,
	OUT remaining interval,
	OUT held_by text,
	OUT reason text)
RETURNS record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_acquire';
REVOKE ALL ON FUNCTION fence.acquire(text, text, interval, interval, text, text) FROM PUBLIC;
COMMENT ON FUNCTION fence.acquire(text, text, interval, interval, text, text) IS
	'takes the lease on a resource and issues its fencing token; a refusal is a row with acquired = false';

CREATE FUNCTION fence.extend(
	resource text,
	token bigint,
	ttl interval DEFAULT '30 seconds',
	OUT extended boolean,
	OUT expires_at timestamptz,
	OUT remaining interval,
	OUT reason text)
RETURNS record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_extend';
REVOKE ALL ON FUNCTION fence.extend(text, bigint, interval) FROM PUBLIC;
COMMENT ON FUNCTION fence.extend(text, bigint, interval) IS
	'lets a live lease run for at least ttl from now; never shortens, never revives';

CREATE FUNCTION fence.release(resource text, token bigint)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_release';
REVOKE ALL ON FUNCTION fence.release(text, bigint) FROM PUBLIC;
COMMENT ON FUNCTION fence.release(text, bigint) IS
	'ends a live lease; false if it is not held any more';

CREATE FUNCTION fence.home()
RETURNS bigint
LANGUAGE C STABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'fence_home_sql';
REVOKE ALL ON FUNCTION fence.home() FROM PUBLIC;
COMMENT ON FUNCTION fence.home() IS
	'identity of this database, as kept with its leases';

CREATE VIEW fence.leases AS
	SELECT r.name AS resource,
		r.holder,
		r.token,
		CASE
			WHEN r.released_at IS NOT NULL THEN 'free'
			WHEN r.expires_at OPERATOR(pg_catalog.>) t.now
				AND r.home OPERATOR(pg_catalog.=) fence.home() THEN 'held'
			ELSE 'expired'
		END AS state,
		r.acquired_at,
		r.expires_at,
		CASE
			WHEN r.released_at IS NULL
				AND r.expires_at OPERATOR(pg_catalog.>) t.now
				AND r.home OPERATOR(pg_catalog.=) fence.home()
			THEN r.expires_at OPERATOR(pg_catalog.-) t.now
		END AS remaining,
		r.renewals,
		r.released_at,
		r.mark
	FROM fence.resource r
		CROSS JOIN (SELECT pg_catalog.clock_timestamp() AS now OFFSET 0) t
	WHERE r.holder IS NOT NULL;
REVOKE ALL ON TABLE fence.leases FROM PUBLIC;
GRANT SELECT ON TABLE fence.leases TO pg_monitor;
COMMENT ON VIEW fence.leases IS
	'the last lease of each resource whose tokens are issued here: held, expired or free';

--
-- Presenting a token
--

CREATE FUNCTION fence.check(
	resource text,
	token bigint,
	holder text DEFAULT NULL,
	lease text DEFAULT NULL)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000
AS 'MODULE_PATHNAME', 'fence_check';
REVOKE ALL ON FUNCTION fence.check(text, bigint, text, text) FROM PUBLIC;
COMMENT ON FUNCTION fence.check(text, bigint, text, text) IS
	'presents a fencing token in this transaction: true, or an error; it is judged again at commit';

CREATE FUNCTION fence.mark(resource text)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_mark';
REVOKE ALL ON FUNCTION fence.mark(text) FROM PUBLIC;
COMMENT ON FUNCTION fence.mark(text) IS
	'high-water mark of a resource, NULL if the resource is not known';

CREATE FUNCTION fence.raise_mark(resource text, token bigint)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_raise_mark';
-- for operators: whoever raises a mark shuts out the present holder
REVOKE ALL ON FUNCTION fence.raise_mark(text, bigint) FROM PUBLIC;
COMMENT ON FUNCTION fence.raise_mark(text, bigint) IS
	'raises the high-water mark of a resource, after its source of tokens was reset; logged; never lowers it';

--
-- Protecting tables
--

CREATE FUNCTION fence.guard()
RETURNS trigger
LANGUAGE C VOLATILE
AS 'MODULE_PATHNAME', 'fence_guard';
REVOKE ALL ON FUNCTION fence.guard() FROM PUBLIC;
COMMENT ON FUNCTION fence.guard() IS
	'trigger function on protected tables; fence.protect() creates the triggers';

CREATE FUNCTION fence.protect(
	target regclass,
	resource text,
	token_column name DEFAULT NULL,
	marks text DEFAULT NULL,
	lease text DEFAULT NULL)
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_protect';
REVOKE ALL ON FUNCTION fence.protect(regclass, text, name, text, text) FROM PUBLIC;
COMMENT ON FUNCTION fence.protect(regclass, text, name, text, text) IS
	'refuses writes on a table that present no valid token for the resource of the row; for the owner of the table';

CREATE FUNCTION fence.unprotect(target regclass)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_unprotect';
REVOKE ALL ON FUNCTION fence.unprotect(regclass) FROM PUBLIC;
COMMENT ON FUNCTION fence.unprotect(regclass) IS
	'removes the guard from a table; false if there was none';

CREATE FUNCTION fence.trigger_arguments(tgargs bytea)
RETURNS text[]
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'fence_trigger_arguments';
REVOKE ALL ON FUNCTION fence.trigger_arguments(bytea) FROM PUBLIC;
COMMENT ON FUNCTION fence.trigger_arguments(bytea) IS
	'takes pg_trigger.tgargs apart';

CREATE VIEW fence.protected_tables AS
	SELECT p.target,
		p.policy OPERATOR(pg_catalog.->>) 'resource' AS resource,
		p.policy OPERATOR(pg_catalog.->>) 'token_column' AS token_column,
		p.policy OPERATOR(pg_catalog.->>) 'marks' AS marks,
		p.policy OPERATOR(pg_catalog.->>) 'lease' AS lease,
		p.enabled
	FROM (
		SELECT t.tgrelid::pg_catalog.regclass AS target,
			t.tgargs,
			pg_catalog.bool_and(t.tgenabled OPERATOR(pg_catalog.<>) 'D') AS enabled,
			(SELECT pg_catalog.jsonb_object_agg(
						pg_catalog.split_part(a.argument, '=', 1),
						pg_catalog.substr(a.argument, pg_catalog.strpos(a.argument, '=') OPERATOR(pg_catalog.+) 1))
				FROM pg_catalog.unnest(fence.trigger_arguments(t.tgargs)) a (argument)
			) AS policy
		FROM pg_catalog.pg_trigger t
		WHERE t.tgfoid OPERATOR(pg_catalog.=) 'fence.guard()'::pg_catalog.regprocedure
			AND t.tgparentid OPERATOR(pg_catalog.=) 0::pg_catalog.oid
		GROUP BY t.tgrelid, t.tgargs
		-- a partition has a TRUNCATE trigger of its own, its parent is listed
		HAVING pg_catalog.bool_or((t.tgtype OPERATOR(pg_catalog.&) 32::smallint) OPERATOR(pg_catalog.=) 0)
	) p;
REVOKE ALL ON TABLE fence.protected_tables FROM PUBLIC;
GRANT SELECT ON TABLE fence.protected_tables TO pg_monitor;
COMMENT ON VIEW fence.protected_tables IS
	'tables with a guard, and what it demands';

--
-- Privileges
--

CREATE FUNCTION fence.grant_writer(grantee regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF grantee IS NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = 'role must not be null';
	END IF;
	EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA fence TO %s', grantee);
	EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION
		fence.acquire(text, text, interval, interval, text, text),
		fence.extend(text, bigint, interval),
		fence.release(text, bigint),
		fence.check(text, bigint, text, text),
		fence.mark(text),
		fence.guard(),
		fence.protect(regclass, text, name, text, text),
		fence.unprotect(regclass)
		TO %s', grantee);
END
$$;
REVOKE ALL ON FUNCTION fence.grant_writer(regrole) FROM PUBLIC;
COMMENT ON FUNCTION fence.grant_writer(regrole) IS
	'grants a role what a writer needs: leases, tokens, and protecting its own tables';

-- The views call these two as the role that reads the view.
GRANT USAGE ON SCHEMA fence TO pg_monitor;
GRANT EXECUTE ON FUNCTION fence.home(), fence.trigger_arguments(bytea) TO pg_monitor;
