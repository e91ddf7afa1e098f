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

-- All tables are heaps, whatever default_table_access_method says: their rows
-- are reached without the executor.

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
	lease text,
	lease_value text,
	acquisitions bigint NOT NULL DEFAULT 0,
	takeovers bigint NOT NULL DEFAULT 0,
	hold_total interval NOT NULL DEFAULT '0',
	hold_max interval NOT NULL DEFAULT '0',
	CONSTRAINT resource_pkey PRIMARY KEY (name)
) USING heap WITH (fillfactor = 50);

COMMENT ON TABLE fence.resource IS
	'One row per resource: tokens issued, high-water mark, lease. Written by the functions of pg_fence only.';
COMMENT ON COLUMN fence.resource.name IS
	'resource, compared byte for byte; empty in the row that keeps the floor of fence.forget()';
COMMENT ON COLUMN fence.resource.token IS 'last token issued here, 0 if none was';
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
COMMENT ON COLUMN fence.resource.lease IS 'server that keeps the lease too, NULL if only PostgreSQL does';
COMMENT ON COLUMN fence.resource.lease_value IS 'the value under which that server keeps it';
COMMENT ON COLUMN fence.resource.acquisitions IS 'leases granted so far';
COMMENT ON COLUMN fence.resource.takeovers IS 'how many of them took over from another holder whose lease had run out';
COMMENT ON COLUMN fence.resource.hold_total IS 'for how long the leases that have ended were held, together';
COMMENT ON COLUMN fence.resource.hold_max IS 'the longest of them';

REVOKE ALL ON TABLE fence.resource FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('fence.resource', '');

-- One row per claimed idempotency key.  The only index is on the id, and what
-- complete() changes is not in it: a HOT update.  It is made right after the
-- insertion and leaves a dead version behind, so little room is enough.
CREATE TABLE fence.idempotency_key (
	id uuid NOT NULL,
	claimed_at timestamptz NOT NULL,
	expires_at timestamptz NOT NULL,
	scope text COLLATE pg_catalog."C" NOT NULL,
	key text COLLATE pg_catalog."C" NOT NULL,
	request bytea,
	response jsonb,
	CONSTRAINT idempotency_key_pkey PRIMARY KEY (id)
) USING heap WITH (fillfactor = 95);

COMMENT ON TABLE fence.idempotency_key IS
	'One row per claimed idempotency key. Written by the functions of pg_fence only.';
COMMENT ON COLUMN fence.idempotency_key.id IS
	'stands for scope and key: 128 bits of their SHA-256; for a UUIDv7, its 48 bits of time and 80 bits of that';
COMMENT ON COLUMN fence.idempotency_key.claimed_at IS 'when the key was claimed';
COMMENT ON COLUMN fence.idempotency_key.expires_at IS
	'until when it is kept at least; a while after that it is pruned';
COMMENT ON COLUMN fence.idempotency_key.scope IS 'what the key is unique in';
COMMENT ON COLUMN fence.idempotency_key.key IS 'idempotency key, compared byte for byte';
COMMENT ON COLUMN fence.idempotency_key.request IS
	'digest of the request, NULL if the claim brought none';
COMMENT ON COLUMN fence.idempotency_key.response IS
	'result of the operation, NULL if it has none';

REVOKE ALL ON TABLE fence.idempotency_key FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('fence.idempotency_key', '');

-- One row per producer of a numbered stream.
CREATE TABLE fence.producer (
	name text COLLATE pg_catalog."C" NOT NULL,
	last bigint NOT NULL,
	claimed_at timestamptz NOT NULL,
	CONSTRAINT producer_pkey PRIMARY KEY (name)
) USING heap WITH (fillfactor = 50);

COMMENT ON TABLE fence.producer IS
	'One row per producer of a numbered stream. Written by fence.claim_sequence() only.';
COMMENT ON COLUMN fence.producer.name IS 'producer, compared byte for byte';
COMMENT ON COLUMN fence.producer.last IS 'the last number that was applied';
COMMENT ON COLUMN fence.producer.claimed_at IS 'when that was';

REVOKE ALL ON TABLE fence.producer FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('fence.producer', '');

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

CREATE FUNCTION fence.acquire_many(
	resources text[],
	holder text,
	ttl interval DEFAULT '30 seconds',
	wait interval DEFAULT '0')
RETURNS TABLE (
	resource text,
	acquired boolean,
	token bigint,
	expires_at timestamptz,
	remaining interval,
	held_by text,
	reason text)
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_acquire_many';
REVOKE ALL ON FUNCTION fence.acquire_many(text[], text, interval, interval) FROM PUBLIC;
COMMENT ON FUNCTION fence.acquire_many(text[], text, interval, interval) IS
	'takes the leases on all these resources, or on none; a row for each';

CREATE FUNCTION fence.hand_over(
	resource text,
	OUT acquired boolean,
	INOUT token bigint,
	new_holder text,
	ttl interval DEFAULT '30 seconds',
	OUT expires_at timestamptz,
	OUT remaining interval,
	OUT held_by text,
	OUT reason text)
RETURNS record
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_hand_over';
REVOKE ALL ON FUNCTION fence.hand_over(text, bigint, text, interval) FROM PUBLIC;
COMMENT ON FUNCTION fence.hand_over(text, bigint, text, interval) IS
	'passes a live lease to another holder under a new token, with no gap for a third one';

CREATE FUNCTION fence.break_lease(resource text)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_break_lease';
-- for operators: it takes the lease from its holder
REVOKE ALL ON FUNCTION fence.break_lease(text) FROM PUBLIC;
COMMENT ON FUNCTION fence.break_lease(text) IS
	'ends the lease on a resource and shuts out its holder; logged; false if there is no lease';

CREATE FUNCTION fence.evict(resource text)
RETURNS integer
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_evict';
-- for operators: it terminates sessions
REVOKE ALL ON FUNCTION fence.evict(text) FROM PUBLIC;
COMMENT ON FUNCTION fence.evict(text) IS
	'terminates the sessions whose open transaction presented an older token for the resource, those of superusers only for superusers; returns how many';

CREATE FUNCTION fence.forget(idle interval, max_rows integer DEFAULT 1000)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_forget';
-- for operators: tokens of what is forgotten are refused from then on
REVOKE ALL ON FUNCTION fence.forget(interval, integer) FROM PUBLIC;
COMMENT ON FUNCTION fence.forget(interval, integer) IS
	'removes resources not used for that long and folds their marks into a floor; returns how many';

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
		r.mark,
		r.acquisitions,
		r.takeovers,
		r.hold_total,
		r.hold_max,
		coalesce(r.lease, 'postgres') AS lease
	FROM fence.resource r
		CROSS JOIN (SELECT pg_catalog.clock_timestamp() AS now OFFSET 0) t
	WHERE r.holder IS NOT NULL;
REVOKE ALL ON TABLE fence.leases FROM PUBLIC;
GRANT SELECT ON TABLE fence.leases TO pg_monitor;
COMMENT ON VIEW fence.leases IS
	'the last lease of each resource whose tokens are issued here: held, expired or free';

--
-- Leases kept by Redis
--

CREATE FUNCTION fence.redis_validator(options text[], catalog oid)
RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_redis_validator';
REVOKE ALL ON FUNCTION fence.redis_validator(text[], oid) FROM PUBLIC;
COMMENT ON FUNCTION fence.redis_validator(text[], oid) IS
	'checks the options of servers and user mappings of fence_redis';

-- No handler: nothing can be read through it.
CREATE FOREIGN DATA WRAPPER fence_redis VALIDATOR fence.redis_validator;
COMMENT ON FOREIGN DATA WRAPPER fence_redis IS
	'servers that keep leases in Redis; fence.check(), fence.protect() and fence.acquire() name them as lease';

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
-- Idempotency keys
--

-- Types with a name: a statement that calls a function in FROM starts faster
-- than with a list of OUT parameters, and drivers know what they get.
CREATE TYPE fence.claim_result AS (fresh boolean, response jsonb, claimed_at timestamptz);
REVOKE ALL ON TYPE fence.claim_result FROM PUBLIC;
COMMENT ON TYPE fence.claim_result IS 'what fence.claim() returns';

CREATE TYPE fence.admit_result AS (fresh boolean, response jsonb);
REVOKE ALL ON TYPE fence.admit_result FROM PUBLIC;
COMMENT ON TYPE fence.admit_result IS 'what fence.admit() returns';

CREATE TYPE fence.lookup_result AS (response jsonb, claimed_at timestamptz);
REVOKE ALL ON TYPE fence.lookup_result FROM PUBLIC;
COMMENT ON TYPE fence.lookup_result IS 'what fence.lookup() returns';

CREATE FUNCTION fence.claim(
	key text,
	scope text DEFAULT '',
	request jsonb DEFAULT NULL,
	retain interval DEFAULT '24 hours')
RETURNS fence.claim_result
LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000
AS 'MODULE_PATHNAME', 'fence_claim_sql';
REVOKE ALL ON FUNCTION fence.claim(text, text, jsonb, interval) FROM PUBLIC;
COMMENT ON FUNCTION fence.claim(text, text, jsonb, interval) IS
	'claims an idempotency key: fresh, do the work and call fence.complete(); else the stored response';

CREATE FUNCTION fence.complete(
	key text,
	response jsonb DEFAULT 'null',
	scope text DEFAULT '')
RETURNS jsonb
LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000
AS 'MODULE_PATHNAME', 'fence_complete_sql';
REVOKE ALL ON FUNCTION fence.complete(text, jsonb, text) FROM PUBLIC;
COMMENT ON FUNCTION fence.complete(text, jsonb, text) IS
	'stores the response of a claim, in the transaction that has made it; returns the response';

CREATE FUNCTION fence.once(key text, scope text DEFAULT '')
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000
AS 'MODULE_PATHNAME', 'fence_once';
REVOKE ALL ON FUNCTION fence.once(text, text) FROM PUBLIC;
COMMENT ON FUNCTION fence.once(text, text) IS
	'claims an idempotency key without a response: true the first time, for all rows of the statement';

CREATE FUNCTION fence.claim_many(
	keys text[],
	scope text DEFAULT '',
	requests jsonb[] DEFAULT NULL)
RETURNS TABLE (key text, fresh boolean, response jsonb)
LANGUAGE C VOLATILE PARALLEL UNSAFE COST 10000
AS 'MODULE_PATHNAME', 'fence_claim_many';
REVOKE ALL ON FUNCTION fence.claim_many(text[], text, jsonb[]) FROM PUBLIC;
COMMENT ON FUNCTION fence.claim_many(text[], text, jsonb[]) IS
	'claims several idempotency keys, in an order that cannot deadlock; a row for each';

CREATE FUNCTION fence.lookup(key text, scope text DEFAULT '')
RETURNS fence.lookup_result
LANGUAGE C STABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'fence_lookup';
REVOKE ALL ON FUNCTION fence.lookup(text, text) FROM PUBLIC;
COMMENT ON FUNCTION fence.lookup(text, text) IS
	'the stored response of an idempotency key, nulls if it is not known; claims nothing';

CREATE FUNCTION fence.admit(
	resource text,
	token bigint,
	key text,
	request jsonb DEFAULT NULL,
	holder text DEFAULT NULL,
	lease text DEFAULT NULL)
RETURNS fence.admit_result
LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000
AS 'MODULE_PATHNAME', 'fence_admit';
REVOKE ALL ON FUNCTION fence.admit(text, bigint, text, jsonb, text, text) FROM PUBLIC;
COMMENT ON FUNCTION fence.admit(text, bigint, text, jsonb, text, text) IS
	'claims an idempotency key in the scope of a resource and, if it is fresh, presents the fencing token';

CREATE FUNCTION fence.claim_sequence(
	producer text,
	seq bigint,
	first bigint DEFAULT 1)
RETURNS boolean
LANGUAGE C VOLATILE PARALLEL UNSAFE COST 1000
AS 'MODULE_PATHNAME', 'fence_claim_sequence';
REVOKE ALL ON FUNCTION fence.claim_sequence(text, bigint, bigint) FROM PUBLIC;
COMMENT ON FUNCTION fence.claim_sequence(text, bigint, bigint) IS
	'claims the next number of an ordered stream: false if it was applied before, an error if it skips ahead';

CREATE FUNCTION fence.prune(max_rows integer DEFAULT 10000)
RETURNS bigint
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_prune';
-- for operators: a key that is gone can be claimed again
REVOKE ALL ON FUNCTION fence.prune(integer) FROM PUBLIC;
COMMENT ON FUNCTION fence.prune(integer) IS
	'deletes idempotency keys that have expired a while ago; returns how many';

--
-- Statistics
--

-- The functions behind the views need shared memory, else they raise 55000.
-- Counters are those of this database, since the server was started.  A null
-- name stands for all that had to give way to others.

CREATE FUNCTION fence.stat_resources()
RETURNS TABLE (
	resource text,
	attempts bigint,
	acquired bigint,
	contended bigint,
	releases bigint,
	expirations bigint,
	takeovers bigint,
	hand_overs bigint,
	breaks bigint,
	checks bigint,
	observed bigint,
	pf001 bigint,
	pf002 bigint,
	pf003 bigint,
	pf004 bigint,
	pf005 bigint,
	pf006 bigint,
	pf007 bigint,
	other bigint,
	wait_time interval,
	hold_time interval,
	wait_histogram bigint[],
	hold_histogram bigint[])
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_stat_resources';
REVOKE ALL ON FUNCTION fence.stat_resources() FROM PUBLIC;
COMMENT ON FUNCTION fence.stat_resources() IS
	'counters per resource, behind view fence.stat_resources';

CREATE VIEW fence.stat_resources AS
	SELECT s.resource,
		s.attempts, s.acquired, s.contended, s.wait_time,
		s.releases, s.expirations, s.takeovers, s.hand_overs, s.breaks, s.hold_time,
		s.checks,
		s.pf001 OPERATOR(pg_catalog.+) s.pf002 OPERATOR(pg_catalog.+) s.pf003 OPERATOR(pg_catalog.+) s.pf004
			OPERATOR(pg_catalog.+) s.pf005 OPERATOR(pg_catalog.+) s.pf006 OPERATOR(pg_catalog.+) s.pf007
			OPERATOR(pg_catalog.+) s.other AS rejections,
		s.pf001, s.pf002, s.pf003, s.pf004, s.pf005, s.pf006, s.pf007, s.other,
		s.observed,
		s.wait_histogram, s.hold_histogram
	FROM fence.stat_resources() s;
REVOKE ALL ON TABLE fence.stat_resources FROM PUBLIC;
GRANT SELECT ON TABLE fence.stat_resources TO pg_monitor;
COMMENT ON VIEW fence.stat_resources IS
	'per resource: how often it was wanted, fought over, held for how long, and refused';

CREATE FUNCTION fence.stat_tables()
RETURNS TABLE (
	target oid,
	bypassed bigint,
	observed bigint,
	pf001 bigint,
	pf002 bigint,
	pf003 bigint,
	pf004 bigint,
	pf005 bigint,
	pf006 bigint,
	pf007 bigint,
	other bigint)
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_stat_tables';
REVOKE ALL ON FUNCTION fence.stat_tables() FROM PUBLIC;
COMMENT ON FUNCTION fence.stat_tables() IS
	'counters per table, behind view fence.stat_tables';

CREATE VIEW fence.stat_tables AS
	SELECT s.target::pg_catalog.regclass AS target,
		s.pf001 OPERATOR(pg_catalog.+) s.pf002 OPERATOR(pg_catalog.+) s.pf003 OPERATOR(pg_catalog.+) s.pf004
			OPERATOR(pg_catalog.+) s.pf005 OPERATOR(pg_catalog.+) s.pf006 OPERATOR(pg_catalog.+) s.pf007
			OPERATOR(pg_catalog.+) s.other AS rejections,
		s.pf001, s.pf002, s.pf003, s.pf004, s.pf005, s.pf006, s.pf007, s.other,
		s.observed,
		s.bypassed
	FROM fence.stat_tables() s;
REVOKE ALL ON TABLE fence.stat_tables FROM PUBLIC;
GRANT SELECT ON TABLE fence.stat_tables TO pg_monitor;
COMMENT ON VIEW fence.stat_tables IS
	'per protected table: writes refused, observed, and statements that passed by pg_fence.bypass';

CREATE FUNCTION fence.stat_redis()
RETURNS TABLE (
	server oid,
	answered bigint,
	unreachable bigint,
	timed_out bigint,
	unable bigint,
	misconfigured bigint,
	time_spent interval,
	histogram bigint[])
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_stat_redis';
REVOKE ALL ON FUNCTION fence.stat_redis() FROM PUBLIC;
COMMENT ON FUNCTION fence.stat_redis() IS
	'counters per Redis server, behind view fence.stat_redis';

CREATE VIEW fence.stat_redis AS
	SELECT f.srvname AS server,
		s.answered OPERATOR(pg_catalog.+) s.unreachable OPERATOR(pg_catalog.+) s.timed_out
			OPERATOR(pg_catalog.+) s.unable OPERATOR(pg_catalog.+) s.misconfigured AS calls,
		s.unreachable, s.timed_out, s.unable, s.misconfigured, s.time_spent, s.histogram
	FROM fence.stat_redis() s
		LEFT JOIN pg_catalog.pg_foreign_server f ON f.oid OPERATOR(pg_catalog.=) s.server;
REVOKE ALL ON TABLE fence.stat_redis FROM PUBLIC;
GRANT SELECT ON TABLE fence.stat_redis TO pg_monitor;
COMMENT ON VIEW fence.stat_redis IS
	'per Redis server: calls, failures by kind, and how long they took';

CREATE FUNCTION fence.rejections(missing_ok boolean)
RETURNS TABLE (
	rejected_at timestamptz,
	role oid,
	application text,
	pid integer,
	resource text,
	presented bigint,
	mark bigint,
	target oid,
	sqlstate text,
	observed boolean)
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_rejections';
REVOKE ALL ON FUNCTION fence.rejections(boolean) FROM PUBLIC;
COMMENT ON FUNCTION fence.rejections(boolean) IS
	'the last refused writes, behind view fence.rejections; true: none where there is no shared memory';

CREATE VIEW fence.rejections AS
	SELECT r.rejected_at,
		pg_catalog.pg_get_userbyid(r.role) AS role,
		r.application,
		r.pid,
		r.resource,
		r.presented,
		r.mark,
		r.target::pg_catalog.regclass AS target,
		r.sqlstate,
		r.observed
	FROM fence.rejections(false) r;
REVOKE ALL ON TABLE fence.rejections FROM PUBLIC;
GRANT SELECT ON TABLE fence.rejections TO pg_monitor;
COMMENT ON VIEW fence.rejections IS
	'the last refused writes, newest first; they outlive the transaction that was refused';

-- Leases that have ended, written while pg_fence.history is on.
CREATE TABLE fence.history (
	resource text COLLATE pg_catalog."C" NOT NULL,
	token bigint NOT NULL,
	holder text NOT NULL,
	acquired_at timestamptz NOT NULL,
	ended_at timestamptz NOT NULL,
	ended text NOT NULL
) USING heap;
CREATE INDEX history_resource_idx ON fence.history (resource, ended_at);
-- for pruning
CREATE INDEX history_ended_at_idx ON fence.history (ended_at);

COMMENT ON TABLE fence.history IS
	'Leases that have ended, see fence.timeline(). Written and pruned while pg_fence.history is on.';
COMMENT ON COLUMN fence.history.resource IS 'what was leased';
COMMENT ON COLUMN fence.history.token IS 'fencing token of the lease';
COMMENT ON COLUMN fence.history.holder IS 'who held it';
COMMENT ON COLUMN fence.history.acquired_at IS 'since when';
COMMENT ON COLUMN fence.history.ended_at IS 'until when';
COMMENT ON COLUMN fence.history.ended IS
	'how it ended: released, expired (and taken over by another holder), handed over, broken';

REVOKE ALL ON TABLE fence.history FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('fence.history', '');

CREATE FUNCTION fence.timeline(resource text, since interval DEFAULT '1 day', width integer DEFAULT 50)
RETURNS TABLE (
	holder text,
	token bigint,
	acquired_at timestamptz,
	ended_at timestamptz,
	held interval,
	ended text,
	bar text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
WITH span AS MATERIALIZED (
	SELECT clock_timestamp() - timeline.since AS start, clock_timestamp() AS stop
), lease AS (
	SELECT h.holder, h.token, h.acquired_at, h.ended_at, h.ended
	FROM fence.history h
	WHERE h.resource = timeline.resource AND h.ended_at > (SELECT start FROM span)
	UNION ALL
	-- the one that nobody has ended
	SELECT l.holder, l.token, l.acquired_at, CASE l.state WHEN 'expired' THEN least(l.expires_at, s.stop) END, l.state
	FROM fence.leases l CROSS JOIN span s
	WHERE l.resource = timeline.resource AND l.state <> 'free'
), scale AS (
	-- neither no time nor all of it has one
	SELECT s.*, nullif(nullif(extract(epoch FROM s.stop - s.start), 0), 'Infinity') AS length FROM span s
), part AS (
	SELECT l.*, greatest(coalesce(l.ended_at, s.stop) - l.acquired_at, '0') AS held,
		-- in characters from the left
		floor(width * extract(epoch FROM greatest(l.acquired_at, s.start) - s.start) / s.length)::integer AS left_end,
		ceil(width * extract(epoch FROM coalesce(l.ended_at, s.stop) - s.start) / s.length)::integer AS right_end
	FROM lease l CROSS JOIN scale s
	WHERE coalesce(l.ended_at, s.stop) > s.start
)
SELECT p.holder, p.token, p.acquired_at, p.ended_at, p.held, p.ended,
	rpad(repeat(' ', p.left_end) || repeat('#', greatest(p.right_end - p.left_end, 1)), width)
FROM part p
ORDER BY p.token
$$;
REVOKE ALL ON FUNCTION fence.timeline(text, interval, integer) FROM PUBLIC;
COMMENT ON FUNCTION fence.timeline(text, interval, integer) IS
	'who held a resource when, for how long and how it ended; needs pg_fence.history';

CREATE FUNCTION fence.stat_reset()
RETURNS void
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_stat_reset';
-- for operators: what others look at is gone
REVOKE ALL ON FUNCTION fence.stat_reset() FROM PUBLIC;
COMMENT ON FUNCTION fence.stat_reset() IS
	'sets all counters of this database to zero and empties fence.rejections';

CREATE FUNCTION fence.histogram_bounds()
RETURNS interval[]
LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE
AS 'MODULE_PATHNAME', 'fence_histogram_bounds';
REVOKE ALL ON FUNCTION fence.histogram_bounds() FROM PUBLIC;
COMMENT ON FUNCTION fence.histogram_bounds() IS
	'upper bounds of the buckets of all histograms; one more bucket is above the last';

CREATE FUNCTION fence.histogram_percentile(histogram bigint[], fraction double precision)
RETURNS interval
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'fence_histogram_percentile';
REVOKE ALL ON FUNCTION fence.histogram_percentile(bigint[], double precision) FROM PUBLIC;
COMMENT ON FUNCTION fence.histogram_percentile(bigint[], double precision) IS
	'the duration that this fraction (0 to 1) of those in the histogram does not exceed';

CREATE FUNCTION fence.histogram_text(histogram bigint[], width integer DEFAULT 50)
RETURNS text
LANGUAGE C IMMUTABLE PARALLEL SAFE
AS 'MODULE_PATHNAME', 'fence_histogram_text';
REVOKE ALL ON FUNCTION fence.histogram_text(bigint[], integer) FROM PUBLIC;
COMMENT ON FUNCTION fence.histogram_text(bigint[], integer) IS
	'draws a histogram, for psql';

CREATE VIEW fence.keys AS
	SELECT k.scope, k.key, k.claimed_at, k.expires_at,
		pg_catalog.pg_column_size(k.response) AS response_size
	FROM fence.idempotency_key k;
REVOKE ALL ON TABLE fence.keys FROM PUBLIC;
GRANT SELECT ON TABLE fence.keys TO pg_monitor;
COMMENT ON VIEW fence.keys IS
	'idempotency keys that are kept, without their requests and responses';

CREATE VIEW fence.producers AS
	SELECT p.name AS producer, p.last, p.claimed_at
	FROM fence.producer p;
REVOKE ALL ON TABLE fence.producers FROM PUBLIC;
GRANT SELECT ON TABLE fence.producers TO pg_monitor;
COMMENT ON VIEW fence.producers IS
	'producers of numbered streams, and the last number of each that was applied';

--
-- Protecting tables
--

CREATE FUNCTION fence.guard()
RETURNS trigger
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_guard';
REVOKE ALL ON FUNCTION fence.guard() FROM PUBLIC;
COMMENT ON FUNCTION fence.guard() IS
	'trigger function on protected tables; fence.protect() creates the triggers';

CREATE FUNCTION fence.protect(
	target regclass,
	resource text,
	token_column name DEFAULT NULL,
	marks text DEFAULT NULL,
	lease text DEFAULT NULL,
	mode text DEFAULT 'enforce',
	key_column name DEFAULT NULL,
	on_duplicate text DEFAULT 'error')
RETURNS void
LANGUAGE C VOLATILE PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_protect';
REVOKE ALL ON FUNCTION fence.protect(regclass, text, name, text, text, text, name, text) FROM PUBLIC;
COMMENT ON FUNCTION fence.protect(regclass, text, name, text, text, text, name, text) IS
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
	'takes pg_trigger.tgargs apart: the parts of a guard''s policy';

CREATE VIEW fence.protected_tables AS
	SELECT p.target,
		p.policy OPERATOR(pg_catalog.->>) 'resource' AS resource,
		p.policy OPERATOR(pg_catalog.->>) 'token_column' AS token_column,
		p.policy OPERATOR(pg_catalog.->>) 'marks' AS marks,
		p.policy OPERATOR(pg_catalog.->>) 'lease' AS lease,
		coalesce(p.policy OPERATOR(pg_catalog.->>) 'mode', 'enforce') AS mode,
		p.enabled,
		p.policy OPERATOR(pg_catalog.->>) 'key_column' AS key_column,
		p.policy OPERATOR(pg_catalog.->>) 'key_scope' AS key_scope,
		CASE
			WHEN p.policy OPERATOR(pg_catalog.->>) 'key_column' IS NOT NULL
			THEN coalesce(p.policy OPERATOR(pg_catalog.->>) 'on_duplicate', 'error')
		END AS on_duplicate
	FROM (
		SELECT t.tgrelid::pg_catalog.regclass AS target,
			t.tgargs,
			pg_catalog.bool_and(t.tgenabled OPERATOR(pg_catalog.=) 'O' OR t.tgenabled OPERATOR(pg_catalog.=) 'A') AS enabled,
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

CREATE FUNCTION fence.policy_problem(target regclass, tgargs bytea)
RETURNS text
LANGUAGE C STABLE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_policy_problem';
REVOKE ALL ON FUNCTION fence.policy_problem(regclass, bytea) FROM PUBLIC;
COMMENT ON FUNCTION fence.policy_problem(regclass, bytea) IS
	'why a guard with these trigger arguments cannot work on the table as it is now, NULL if it can';

CREATE FUNCTION fence.stored_above_mark(target regclass, tgargs bytea)
RETURNS TABLE (resource text, token bigint)
LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE
AS 'MODULE_PATHNAME', 'fence_stored_above_mark';
REVOKE ALL ON FUNCTION fence.stored_above_mark(regclass, bytea) FROM PUBLIC;
COMMENT ON FUNCTION fence.stored_above_mark(regclass, bytea) IS
	'rows that hold a token above the mark of their resource; reads the whole table';

-- What weakens a guard.  The remedy is a statement, or words where there is
-- none.
CREATE FUNCTION fence.audit()
RETURNS TABLE (target regclass, severity text, problem text, remedy text)
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
WITH guard AS MATERIALIZED (
	SELECT t.oid, t.tgrelid, t.tgname, t.tgtype, t.tgenabled, t.tgargs,
		t.tgparentid,
		-- not limited to some columns or rows
		t.tgattr = '' AND t.tgqual IS NULL AS whole,
		(t.tgtype & 1) <> 0 AS is_row,
		(t.tgtype & 2) <> 0 AS is_before,
		(t.tgtype & 32) <> 0 AS is_truncate,
		c.relkind, c.relowner,
		pg_catalog.quote_ident(t.tgname) AS qname
	FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
	WHERE t.tgfoid = 'fence.guard()'::regprocedure
), guarded AS (
	-- the tables that fence.protect() was called for; not partitions that a
	-- guard comes to from their parent
	SELECT tgrelid, (array_agg(tgargs ORDER BY tgargs))[1] AS tgargs, count(DISTINCT fence.trigger_arguments(tgargs)) AS policies,
		relkind, relowner,
		bool_or(whole AND tgtype = 34) AS has_truncate,
		bool_or(whole AND tgtype = 28) AS has_statement,
		bool_or(whole AND tgtype = 31) AS has_before,
		bool_or(whole AND tgtype = 29) AS has_after,
		bool_or(whole AND tgtype IN (21, 29)) AS has_written,
		bool_and(is_truncate) AS only_truncate
	FROM guard
	WHERE relkind IN ('r', 'p')
	GROUP BY tgrelid, relkind, relowner
	HAVING bool_and(tgparentid = 0)
), policy AS MATERIALIZED (
	SELECT g.*, p.resource, p.token_column, p.marks, p.lease, p.mode, p.key_column,
		fence.policy_problem(g.tgrelid, g.tgargs) AS problem,
		format('SELECT fence.protect(%L, %L%s%s%s%s%s%s);', g.tgrelid::regclass, p.resource,
			CASE WHEN p.token_column IS NOT NULL THEN format(', token_column => %L', p.token_column) END,
			CASE WHEN p.marks <> 'resource' THEN format(', marks => %L', p.marks) END,
			CASE WHEN p.lease IS NOT NULL THEN format(', lease => %L', p.lease) END,
			CASE WHEN p.mode <> 'enforce' THEN format(', mode => %L', p.mode) END,
			CASE WHEN p.key_column IS NOT NULL THEN format(', key_column => %L', p.key_column) END,
			CASE WHEN p.on_duplicate <> 'error' THEN format(', on_duplicate => %L', p.on_duplicate) END) AS protect
	FROM guarded g
		CROSS JOIN LATERAL (
			SELECT max(substr(a, 10)) FILTER (WHERE a LIKE 'resource=%') AS resource,
				max(substr(a, 14)) FILTER (WHERE a LIKE 'token\_column=%') AS token_column,
				coalesce(max(substr(a, 7)) FILTER (WHERE a LIKE 'marks=%'), 'resource') AS marks,
				max(substr(a, 7)) FILTER (WHERE a LIKE 'lease=%') AS lease,
				coalesce(max(substr(a, 6)) FILTER (WHERE a LIKE 'mode=%'), 'enforce') AS mode,
				max(substr(a, 12)) FILTER (WHERE a LIKE 'key\_column=%') AS key_column,
				coalesce(max(substr(a, 14)) FILTER (WHERE a LIKE 'on\_duplicate=%'), 'error') AS on_duplicate
			FROM unnest(fence.trigger_arguments(g.tgargs)) a) p
), below AS (
	-- the partitions of guarded tables
	SELECT p.tgrelid::regclass AS target, p.tgargs, p.protect, t.relid AS partition, t.parentrelid AS parent, c.relkind, c.relowner,
		c.relowner <> p.relowner AS owner_differs
	FROM policy p CROSS JOIN LATERAL pg_partition_tree(p.tgrelid) t JOIN pg_class c ON c.oid = t.relid
	WHERE p.relkind = 'p' AND t.relid <> p.tgrelid
)
SELECT tgrelid::regclass, 'error', format('guard trigger %s is disabled', qname),
	format('ALTER TABLE %s ENABLE TRIGGER %s;', tgrelid::regclass, qname)
FROM guard WHERE tgenabled IN ('D', 'R')
UNION ALL
SELECT g.tgrelid::regclass, 'error',
	format('trigger %s does not guard: it was made by hand, or limited to some events, columns or rows', g.qname),
	CASE WHEN g.tgname LIKE '~fence\_%' THEN p.protect
		ELSE format('DROP TRIGGER %s ON %s;', g.qname, g.tgrelid::regclass) END
FROM guard g JOIN policy p ON p.tgrelid = g.tgrelid
WHERE g.tgparentid = 0 AND NOT (g.whole AND g.tgtype IN (21, 28, 29, 31, 34))
UNION ALL
SELECT tgrelid::regclass, 'error', format('guard trigger %s guards nothing: this is not a table', qname),
	format('DROP TRIGGER %s ON %s;', qname, tgrelid::regclass)
FROM guard WHERE relkind NOT IN ('r', 'p') AND tgparentid = 0
UNION ALL
SELECT tgrelid::regclass, 'error', 'its guard triggers disagree about the policy', protect
FROM policy WHERE policies > 1
UNION ALL
SELECT tgrelid::regclass, 'error',
	CASE WHEN only_truncate THEN 'only its TRUNCATE is guarded: it was a partition of a guarded table, or its other guard triggers were dropped'
		ELSE 'some of its guard triggers are missing' END,
	protect
FROM policy
WHERE NOT has_truncate
	OR (token_column IS NOT NULL AND NOT (has_before AND has_written))
	OR (key_column IS NOT NULL AND NOT has_before)
	OR (token_column IS NULL AND NOT (has_statement OR has_after))
UNION ALL
SELECT tgrelid::regclass, 'error', problem, 'Call fence.protect() with the columns that the table has now.'
FROM policy WHERE problem IS NOT NULL
UNION ALL
SELECT tgrelid::regclass, 'error',
	'writes through its parent are not judged, the guard sees only statements on the table itself', protect
FROM policy
WHERE has_statement AND EXISTS (SELECT FROM pg_inherits WHERE inhrelid = tgrelid)
UNION ALL
SELECT tgrelid::regclass, 'warning',
	'the action of a foreign key that was added needs a token also where it changes no row', protect
FROM policy
WHERE has_statement AND EXISTS (
	SELECT FROM pg_constraint
	WHERE conrelid = tgrelid AND contype = 'f' AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd')))
UNION ALL
SELECT i.inhrelid::regclass, 'error', format('inheritance child of guarded table %s has no guard of its own', p.tgrelid::regclass),
	-- protect() refuses a table that has children
	CASE WHEN EXISTS (SELECT FROM pg_inherits WHERE inhparent = i.inhrelid)
		THEN format('ALTER TABLE %s NO INHERIT %s;', i.inhrelid::regclass, i.inhparent::regclass)
		ELSE replace(p.protect, quote_literal(p.tgrelid::regclass::text), quote_literal(i.inhrelid::regclass::text)) END
FROM policy p CROSS JOIN LATERAL (
		WITH RECURSIVE heir AS (
			SELECT inhrelid, inhparent FROM pg_inherits WHERE inhparent = p.tgrelid
			UNION
			SELECT n.inhrelid, n.inhparent FROM pg_inherits n JOIN heir ON n.inhparent = heir.inhrelid)
		SELECT * FROM heir) i
WHERE p.relkind = 'r' AND NOT EXISTS (SELECT FROM guard WHERE tgrelid = i.inhrelid)
UNION ALL
SELECT partition, 'error', format('it is a foreign partition of guarded table %s: its rows are written elsewhere, past the guard', target),
	format('ALTER TABLE %s DETACH PARTITION %s;', parent, partition)
FROM below WHERE relkind = 'f'
UNION ALL
SELECT partition, 'error', 'TRUNCATE of this partition is not guarded', protect
FROM below
WHERE relkind <> 'f'
	AND NOT EXISTS (SELECT FROM guard g WHERE g.tgrelid = partition AND g.is_truncate)
UNION ALL
SELECT DISTINCT partition, 'error', format('it has guard triggers that do not come from guarded table %s', target), protect
FROM below JOIN guard g ON g.tgrelid = partition AND g.tgparentid = 0
WHERE NOT (g.is_truncate AND g.tgargs = below.tgargs)
UNION ALL
SELECT t.tgrelid::regclass, 'warning',
	format('trigger %s fires after the guard and can change what it has judged', quote_ident(t.tgname)),
	format('ALTER TRIGGER %s ON %s RENAME TO ...;', quote_ident(t.tgname), t.tgrelid::regclass)
FROM pg_trigger t JOIN guard g ON g.tgrelid = t.tgrelid AND g.is_row AND g.is_before
WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND (t.tgtype & 3) = 3
	AND t.tgfoid <> 'fence.guard()'::regprocedure
	AND t.tgname::text COLLATE "C" > g.tgname::text COLLATE "C"
UNION ALL
SELECT tgrelid::regclass, 'warning', 'its guard only observes',
	replace(protect, ', mode => ''observe''', '')
FROM policy WHERE mode = 'observe'
UNION ALL
SELECT o.target, 'warning',
	format(CASE WHEN r.oid = o.relowner THEN 'its owner %s can log in and can remove the guard'
			ELSE '%s, a member of its owner %s, can log in and can remove the guard' END,
		quote_ident(r.rolname), quote_ident(pg_get_userbyid(o.relowner))),
	format('ALTER TABLE %s OWNER TO ...;', o.target)
FROM (
		SELECT tgrelid::regclass AS target, relowner FROM policy
		UNION ALL
		SELECT partition, relowner FROM below WHERE owner_differs) o
	JOIN pg_roles r ON pg_has_role(r.oid, o.relowner, 'MEMBER')
WHERE r.rolcanlogin AND NOT r.rolsuper
UNION ALL
SELECT g.tgrelid::regclass, 'warning',
	format('marks do not follow replicated rows: guard trigger %s does not fire for them', g.qname),
	format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %s;', g.tgrelid::regclass, g.qname)
FROM pg_subscription_rel s JOIN guard g ON g.tgrelid = s.srrelid AND g.is_row AND g.tgenabled = 'O'
WHERE 'marks=both' = ANY (fence.trigger_arguments(g.tgargs))
UNION ALL
SELECT p.tgrelid::regclass, 'error',
	format('resource "%s" has a mark below token %s, which is stored in the table', a.resource, max(a.token)),
	format('SELECT fence.raise_mark(%L, %s);', a.resource, max(a.token))
FROM policy p CROSS JOIN LATERAL fence.stored_above_mark(p.tgrelid, p.tgargs) a
WHERE p.marks = 'both' AND p.problem IS NULL
GROUP BY p.tgrelid, a.resource
UNION ALL
SELECT c.oid::regclass, 'error', format('%s may %s on it', r.name, a.privilege_type),
	format('REVOKE %s ON %s FROM %s;', a.privilege_type, c.oid::regclass, r.name)
FROM pg_class c
	CROSS JOIN LATERAL (
		SELECT grantee, privilege_type FROM aclexplode(c.relacl)
		UNION ALL
		SELECT x.grantee, format('%s (%I)', x.privilege_type, t.attname)
		FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) x
		WHERE t.attrelid = c.oid) a
	CROSS JOIN LATERAL (
		SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name) r
WHERE c.relnamespace = 'fence'::regnamespace AND c.relkind = 'r' AND a.grantee <> c.relowner
UNION ALL
SELECT c.oid::regclass, 'error', format('its owner %s is not a superuser', quote_ident(r.rolname)),
	format('ALTER TABLE %s OWNER TO ...;', c.oid::regclass)
FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
WHERE c.relnamespace = 'fence'::regnamespace AND c.relkind = 'r' AND NOT r.rolsuper
UNION ALL
SELECT c.oid::regclass, 'error', 'it is not a logged table, a crash empties it',
	format('ALTER TABLE %s SET LOGGED;', c.oid::regclass)
FROM pg_class c
WHERE c.relnamespace = 'fence'::regnamespace AND c.relkind = 'r' AND c.relpersistence <> 'p'
UNION ALL
SELECT NULL, 'error',
	format('%s may create objects in schema fence, where they could stand in for functions of pg_fence', r.name),
	format('REVOKE CREATE ON SCHEMA fence FROM %s;', r.name)
FROM pg_namespace n
	CROSS JOIN LATERAL aclexplode(n.nspacl) a
	CROSS JOIN LATERAL (
		SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS name) r
WHERE n.nspname = 'fence' AND a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner
UNION ALL
SELECT DISTINCT NULL::regclass, 'error',
	format('%s is a member of pg_write_all_data%s and may write fence.resource', quote_ident(m.rolname),
		CASE WHEN m.oid <> am.member THEN ' through ' || quote_ident(pg_get_userbyid(am.member)) END),
	format('REVOKE pg_write_all_data FROM %s;', quote_ident(pg_get_userbyid(am.member)))
FROM pg_auth_members am JOIN pg_roles m ON pg_has_role(m.oid, am.member, 'MEMBER')
WHERE am.roleid = 'pg_write_all_data'::regrole AND NOT m.rolsuper
UNION ALL
SELECT NULL, s.severity, format('%s is %s%s: %s', s.name, s.value, s.place, s.consequence), s.remedy
FROM (
	SELECT w.*, x.value, x.place, x.remedy || w.name || ';' AS remedy
	FROM (VALUES
			('synchronous_commit', 'off|of|false|fals|fal|fa|f|no|n|0', 'warning', 'a crash can lose the newest marks'),
			('pg_fence.bypass', 'on|true|tru|tr|t|yes|ye|y|1', 'error', 'no guard judges anything'),
			('session_replication_role', 'replica', 'error', 'ordinary triggers do not fire'))
		w (name, bad, severity, consequence)
		CROSS JOIN LATERAL (
			SELECT current_setting(w.name, true) AS value, '' AS place,
				CASE (SELECT source FROM pg_settings g WHERE g.name = w.name)
					WHEN 'session' THEN 'RESET ' ELSE 'ALTER SYSTEM RESET ' END AS remedy
			UNION ALL
			SELECT split_part(v, '=', 2),
				CASE WHEN d.setrole <> 0 THEN ' for role ' || quote_ident(pg_get_userbyid(d.setrole)) ELSE ' for all roles' END ||
				CASE WHEN d.setdatabase <> 0 THEN ' in this database' ELSE '' END,
				CASE WHEN d.setrole = 0 AND d.setdatabase = 0 THEN 'ALTER ROLE ALL RESET '
					WHEN d.setrole = 0 THEN format('ALTER DATABASE %I RESET ', current_database())
					ELSE format('ALTER ROLE %I%s RESET ', pg_get_userbyid(d.setrole),
						CASE WHEN d.setdatabase <> 0 THEN format(' IN DATABASE %I', current_database()) END) END
			FROM pg_db_role_setting d CROSS JOIN LATERAL unnest(d.setconfig) v
			WHERE split_part(v, '=', 1) = w.name
				AND d.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))) x
	WHERE lower(x.value) = ANY (string_to_array(w.bad, '|'))) s
UNION ALL
SELECT p.tgrelid::regclass, 'error', format('there is no server %I of fence_redis to keep its leases', p.lease),
	'Create the server, or call fence.protect() with another lease.'
FROM policy p
WHERE p.lease <> 'postgres' AND NOT EXISTS (
	SELECT FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
	WHERE s.srvname = p.lease AND w.fdwname = 'fence_redis')
UNION ALL
SELECT nullif(c.conrelid, 0)::regclass, 'error',
	format('CHECK constraint %s calls %s, and would refuse rows that are restored', quote_ident(c.conname), d.refobjid::regprocedure),
	CASE WHEN c.conrelid <> 0 THEN format('ALTER TABLE %s DROP CONSTRAINT %I;', c.conrelid::regclass, c.conname)
		ELSE format('ALTER DOMAIN %s DROP CONSTRAINT %I;', c.contypid::regtype, c.conname) END
FROM pg_constraint c
	JOIN pg_depend d ON d.classid = 'pg_constraint'::regclass AND d.objid = c.oid
		AND d.refclassid = 'pg_proc'::regclass
	JOIN pg_proc p ON p.oid = d.refobjid
WHERE p.pronamespace = 'fence'::regnamespace AND p.provolatile = 'v' AND c.coninhcount = 0
UNION ALL
SELECT NULL, 'error', 'server postgres of fence_redis is never asked: as a lease, this name stands for PostgreSQL',
	'ALTER SERVER postgres RENAME TO ...;'
FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
WHERE w.fdwname = 'fence_redis' AND s.srvname = 'postgres'
UNION ALL
SELECT NULL, 'warning', format('server %I lets writes through while Redis cannot be asked', s.srvname),
	format('ALTER SERVER %I OPTIONS (DROP on_unreachable);', s.srvname)
FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = s.srvfdw
WHERE w.fdwname = 'fence_redis' AND 'on_unreachable=allow' = ANY (s.srvoptions)
UNION ALL
SELECT NULL, 'warning',
	format('tokens of resource "%s" are refused because they are far below its mark: their source may have been reset', r.name),
	format('Move the source of its tokens above %s.', r.mark)
FROM fence.resource r
	JOIN fence.rejections(true) j ON j.resource = r.name
WHERE r.token = 0 AND j.sqlstate = 'PF001' AND j.rejected_at > r.marked_at
	AND j.presented <= r.mark - 100
GROUP BY r.name, r.mark
HAVING count(*) > 1
UNION ALL
SELECT NULL, 'warning',
	format('resource "%s" has been held by "%s" for more than a day', resource, holder),
	format('SELECT fence.break_lease(%L);', resource)
FROM fence.leases
WHERE state = 'held' AND acquired_at < clock_timestamp() - interval '1 day'
$$;
REVOKE ALL ON FUNCTION fence.audit() FROM PUBLIC;
COMMENT ON FUNCTION fence.audit() IS
	'what weakens the guards of this database, one row each, with the statement that repairs it';

--
-- Privileges
--

-- Grants as the owner of the extension, so that who was given this function
-- grants something.
CREATE FUNCTION fence.grant_writer(role regrole)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	IF role IS NULL THEN
		RAISE invalid_parameter_value USING MESSAGE = 'role must not be null';
	END IF;
	IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE oid OPERATOR(pg_catalog.=) role::oid) THEN
		RAISE undefined_object USING MESSAGE = pg_catalog.format('role with OID %s does not exist', role::oid);
	END IF;
	EXECUTE pg_catalog.format('GRANT USAGE ON SCHEMA fence TO %s', role);
	EXECUTE pg_catalog.format('GRANT EXECUTE ON FUNCTION
		fence.acquire(text, text, interval, interval, text, text),
		fence.acquire_many(text[], text, interval, interval),
		fence.hand_over(text, bigint, text, interval),
		fence.extend(text, bigint, interval),
		fence.release(text, bigint),
		fence.check(text, bigint, text, text),
		fence.mark(text),
		fence.claim(text, text, jsonb, interval),
		fence.complete(text, jsonb, text),
		fence.once(text, text),
		fence.claim_many(text[], text, jsonb[]),
		fence.lookup(text, text),
		fence.admit(text, bigint, text, jsonb, text, text),
		fence.claim_sequence(text, bigint, bigint),
		fence.guard(),
		fence.protect(regclass, text, name, text, text, text, name, text),
		fence.unprotect(regclass)
		TO %s', role);
END
$$;
REVOKE ALL ON FUNCTION fence.grant_writer(regrole) FROM PUBLIC;
COMMENT ON FUNCTION fence.grant_writer(regrole) IS
	'grants a role what a writer needs: leases, tokens, idempotency keys, and protecting its own tables';

-- The views call these as the role that reads the view.
GRANT USAGE ON SCHEMA fence TO pg_monitor;
GRANT EXECUTE ON FUNCTION fence.home(), fence.trigger_arguments(bytea),
	fence.stat_resources(), fence.stat_tables(), fence.stat_redis(),
	fence.rejections(boolean), fence.histogram_bounds(),
	fence.histogram_percentile(bigint[], double precision), fence.histogram_text(bigint[], integer),
	fence.timeline(text, interval, integer)
	TO pg_monitor;
