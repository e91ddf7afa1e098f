-- Leases and the tokens that come with them: acquire, extend, release, the view.
--
-- What needs a second session is tested elsewhere.
-- Field cases: A01 A05 A07 A08 A11 B02 B03 B04 B11 F01 F02 F03 F05 F06 F07 F11
\set VERBOSITY sqlstate
-- Some of this acquires in transactions that have written before.
SET default_transaction_isolation = 'read committed';

-- The owner of the tables can make time pass.
CREATE FUNCTION expire(resource text) RETURNS void LANGUAGE sql AS $$
	UPDATE fence.resource SET acquired_at = acquired_at - interval '2 days', expires_at = clock_timestamp() - interval '1 ms'
	WHERE name = $1
$$;
CREATE VIEW lease_state AS
	SELECT resource, holder, token, state, renewals, mark, remaining IS NULL AS over FROM fence.leases;

-- A first lease
SELECT acquired, token, held_by, reason, remaining BETWEEN '59 minutes' AND '1 hour' AS remaining,
	expires_at - clock_timestamp() BETWEEN '59 minutes' AND '1 hour' AS expires
FROM fence.acquire('lease', 'a', '1 hour');
SELECT * FROM lease_state WHERE resource = 'lease';
SELECT fence.mark('lease'), fence.mark('lease-unknown');
-- the default: 30 seconds
SELECT acquired, remaining BETWEEN '15 s' AND '30 s' AS remaining FROM fence.acquire('lease-default', 'a');

-- Refusal is a row, tells who has it and for how long, and writes nothing (A11).
-- instants are read back below, whatever the server's style
SET datestyle = 'ISO';
SELECT xmin AS x, ctid AS c, expires_at AS e FROM fence.resource WHERE name = 'lease' \gset
SELECT acquired, token, held_by, reason, remaining BETWEEN '59 minutes' AND '1 hour' AS remaining, expires_at = :'e' AS expires
FROM fence.acquire('lease', 'b', '1 day');
SELECT acquired, token, held_by, reason FROM fence.acquire('lease', 'b', '1 ms', '20 ms');
-- B04: the same holder is refused like anybody else
SELECT acquired, token, held_by, reason FROM fence.acquire('lease', 'a', '1 hour');
BEGIN;
SELECT acquired FROM fence.acquire('lease', 'b');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT xmin = :'x' AND ctid = :'c' AND expires_at = :'e' AS untouched FROM fence.resource WHERE name = 'lease';

-- A08, B04: a lost reply is asked for again
SELECT acquired, token FROM fence.acquire('lease-request', 'a', '1 hour', request_id => 'n1');
SELECT xmin AS x, ctid AS c FROM fence.resource WHERE name = 'lease-request' \gset
SELECT acquired, token, held_by, reason FROM fence.acquire('lease-request', 'a', '1 hour', request_id => 'n1');
SELECT acquired, token, held_by, reason FROM fence.acquire('lease-request', 'a', '1 hour', request_id => 'n2');
SELECT acquired, token, held_by, reason FROM fence.acquire('lease-request', 'a', '1 hour');
SELECT acquired, token, held_by, reason FROM fence.acquire('lease-request', 'b', '1 hour', request_id => 'n1');
SELECT xmin = :'x' AND ctid = :'c' AS untouched FROM fence.resource WHERE name = 'lease-request';
-- only while the lease lives
SELECT fence.release('lease-request', 1);
SELECT acquired, token FROM fence.acquire('lease-request', 'a', '1 hour', request_id => 'n1');
SELECT expire('lease-request');
SELECT acquired, token FROM fence.acquire('lease-request', 'a', '1 hour', request_id => 'n1');
-- and not across a mark that was raised over it
SELECT fence.raise_mark('lease-request', 10);
SELECT acquired, token FROM fence.acquire('lease-request', 'a', '1 hour', request_id => 'n1');
SELECT extended, reason FROM fence.extend('lease-request', 3);
SELECT fence.release('lease-request', 3);

-- Extending: never shortens
SELECT expires_at AS e FROM fence.resource WHERE name = 'lease' \gset
SELECT extended, expires_at = :'e' AS same, reason FROM fence.extend('lease', 1, '1 s');
SELECT extended, expires_at > :'e' AS later, remaining > '1 hour' AS remaining, reason FROM fence.extend('lease', 1, '2 hours');
SELECT * FROM lease_state WHERE resource = 'lease';
-- not one's own, or none at all
SELECT extended, expires_at, remaining, reason FROM fence.extend('lease', 2);
SELECT extended, reason FROM fence.extend('lease-unknown', 1);
SELECT fence.check('lease-external', 5);
SELECT extended, reason FROM fence.extend('lease-external', 5);
SELECT fence.release('lease', 2), fence.release('lease-unknown', 1), fence.release('lease-external', 5);
SELECT count(*) FROM fence.resource WHERE name = 'lease-unknown';

-- F05: released twice, extended after release, released in a transaction that is rolled back
BEGIN;
SELECT fence.release('lease', 1);
SELECT * FROM lease_state WHERE resource = 'lease';
ROLLBACK;
SELECT fence.release('lease', 1);
SELECT fence.release('lease', 1);
SELECT extended, reason FROM fence.extend('lease', 1);
SELECT * FROM lease_state WHERE resource = 'lease';
-- the token still is the newest: writes under it are in order, only the lease is over
SELECT fence.check('lease', 1);
SELECT fence.check('lease', 1, lease => 'postgres');
-- free at once; the next token is larger
SELECT acquired, token FROM fence.acquire('lease', 'b', '1 hour');
SELECT fence.check('lease', 1);
SELECT extended, reason FROM fence.extend('lease', 1);

-- A01: the name of the owner proves nothing
SELECT acquired, token FROM fence.acquire('lease-a01', 'host1-w0', '1 s');
SELECT expire('lease-a01');
SELECT acquired, token FROM fence.acquire('lease-a01', 'host1-w0', '30 s');
SELECT xmin AS x, expires_at AS e FROM fence.resource WHERE name = 'lease-a01' \gset
SELECT extended, reason FROM fence.extend('lease-a01', 1);
SELECT fence.release('lease-a01', 1);
SELECT fence.check('lease-a01', 1, 'host1-w0');
SELECT xmin = :'x' AND expires_at = :'e' AS untouched FROM fence.resource WHERE name = 'lease-a01';
SELECT * FROM lease_state WHERE resource = 'lease-a01';

-- F06: expiry is final, also where nobody has taken over
SELECT acquired, token FROM fence.acquire('lease-f06', 'a', '1 hour');
SELECT expire('lease-f06');
SELECT extended, reason FROM fence.extend('lease-f06', 1);
SELECT fence.release('lease-f06', 1);
SELECT * FROM lease_state WHERE resource = 'lease-f06';
SELECT fence.check('lease-f06', 1);
SELECT fence.check('lease-f06', 1, lease => 'postgres');
SELECT acquired, token FROM fence.acquire('lease-f06', 'b', '1 hour');
SELECT extended, reason FROM fence.extend('lease-f06', 1);
SELECT fence.release('lease-f06', 1);
SELECT * FROM lease_state WHERE resource = 'lease-f06';

-- A07: the clock jumps forward, somebody else takes over, the clock jumps back
SELECT acquired, token FROM fence.acquire('lease-a07', 'a', '1 hour');
SELECT expire('lease-a07');
SELECT acquired, token FROM fence.acquire('lease-a07', 'b', '1 hour');
UPDATE fence.resource SET expires_at = clock_timestamp() + '1 day' WHERE name = 'lease-a07';
SELECT fence.check('lease-a07', 1);
SELECT fence.check('lease-a07', 1, 'a', 'postgres');
SELECT extended, reason FROM fence.extend('lease-a07', 1);
SELECT fence.check('lease-a07', 2, 'b', 'postgres');

-- A05, F01: a lease begins when it is granted, not when the transaction did
BEGIN;
SELECT count(*) > 0 AS some_work FROM pg_class;
SELECT expires_at > now() + interval '10 s' AS from_grant,
	expires_at > statement_timestamp() + interval '10 s' AS not_from_statement,
	expires_at <= clock_timestamp() + interval '10 s' AS not_too_long
FROM fence.acquire('lease-f01', 'a', '10 s');
SELECT expires_at > now() + interval '1 hour' AS from_now,
	expires_at > statement_timestamp() + interval '1 hour' AS not_from_statement
FROM fence.extend('lease-f01', 1, '1 hour');
COMMIT;
-- ... and is over when the clock says so, not when the transaction began
SELECT acquired, token FROM fence.acquire('lease-f01-over', 'a', '1 hour');
BEGIN;
SELECT fence.check('lease-f01-over', 1, lease => 'postgres');
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'lease-f01-over';
SELECT expires_at > now() AS live_at_start FROM fence.resource WHERE name = 'lease-f01-over';
SELECT extended, reason FROM fence.extend('lease-f01-over', 1);
COMMIT;

-- F03: the time zone of a session does not matter
SET timezone = 'Asia/Tokyo';
SELECT acquired, token FROM fence.acquire('lease-f03', 'a', '1 hour');
SET timezone = 'America/New_York';
SELECT fence.check('lease-f03', 1, lease => 'postgres');
SELECT acquired, reason FROM fence.acquire('lease-f03', 'b');
SELECT * FROM lease_state WHERE resource = 'lease-f03';
SET timezone = 'UTC';
SELECT extended, remaining BETWEEN '119 minutes' AND '2 hours' AS remaining FROM fence.extend('lease-f03', 1, '2 hours');
SET timezone = 'Pacific/Kiritimati';
SELECT expire('lease-f03');
SET timezone = 'Pacific/Pago_Pago';
SELECT * FROM lease_state WHERE resource = 'lease-f03';
SELECT fence.check('lease-f03', 1, lease => 'postgres');
SELECT acquired, token FROM fence.acquire('lease-f03', 'b');
RESET timezone;

-- F11: leases whose holders have gone are seen, and are taken over without a reaper
SELECT acquired, token FROM generate_series(1, 5) i, fence.acquire('lease-f11-' || i, 'gone', '1 hour');
SELECT expire('lease-f11-' || i) FROM generate_series(1, 5) i;
SELECT state, count(*), bool_and(expires_at < clock_timestamp()) AS since FROM fence.leases
WHERE resource LIKE 'lease-f11-%' GROUP BY state;
SELECT acquired, token FROM fence.acquire('lease-f11-3', 'b', '1 hour');
SELECT state, count(*) FROM fence.leases WHERE resource LIKE 'lease-f11-%' GROUP BY state ORDER BY state COLLATE "C";

-- B02: what is rolled back was not granted
BEGIN;
SELECT acquired, token FROM fence.acquire('lease-b02', 'a', '1 hour');
ROLLBACK;
SELECT fence.mark('lease-b02');
SELECT acquired, token FROM fence.acquire('lease-b02', 'b', '1 hour');
SELECT expire('lease-b02');
BEGIN;
SAVEPOINT s;
SELECT acquired, token FROM fence.acquire('lease-b02', 'c', '1 hour');
ROLLBACK TO s;
SELECT fence.mark('lease-b02');
-- the locks are gone with the savepoint
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT acquired, token FROM fence.acquire('lease-b02', 'd', '1 hour');
COMMIT;
SELECT fence.check('lease-b02', 1, 'b');
SELECT fence.check('lease-b02', 2, 'c');
SELECT fence.check('lease-b02', 2, 'd');

-- B03: a counter that fell behind the mark (logical switchover, restored copy)
SELECT acquired, token FROM fence.acquire('lease-b03', 'a', '1 hour');
UPDATE fence.resource SET token = 8, mark = 5000 WHERE name = 'lease-b03';
SELECT expire('lease-b03');
SELECT acquired, token FROM fence.acquire('lease-b03', 'b', '1 hour');
SELECT fence.check('lease-b03', 5001);
-- and a mark that fell behind the counter
UPDATE fence.resource SET token = 9000, mark = 5001 WHERE name = 'lease-b03';
SELECT expire('lease-b03');
SELECT acquired, token FROM fence.acquire('lease-b03', 'c', '1 hour');
-- external tokens first, then issued here
SELECT fence.check('lease-mixed', 700);
SELECT acquired, token FROM fence.acquire('lease-mixed', 'a', '1 hour');
SELECT fence.check('lease-mixed', 700);
-- from now on no higher number can come from outside
SELECT fence.check('lease-mixed', 702);

-- A lease counts only in the database that granted it.
SELECT acquired, token FROM fence.acquire('lease-home', 'a', '1 hour');
SELECT home = fence.home() AS home FROM fence.resource WHERE name = 'lease-home';
UPDATE fence.resource SET home = home + 1 WHERE name = 'lease-home';
SELECT * FROM lease_state WHERE resource = 'lease-home';
SELECT extended, reason FROM fence.extend('lease-home', 1);
SELECT fence.release('lease-home', 1);
SELECT fence.check('lease-home', 1);
SELECT fence.check('lease-home', 1, lease => 'postgres');
SELECT acquired, token FROM fence.acquire('lease-home', 'b', '1 hour');

-- In one transaction: release and acquire again, acquire twice, several resources.
SELECT acquired, token FROM fence.acquire('lease-tx', 'a', '1 hour');
BEGIN;
SELECT fence.release('lease-tx', 1);
SELECT acquired, token FROM fence.acquire('lease-tx', 'b', '1 hour');
SELECT acquired, token, held_by, reason FROM fence.acquire('lease-tx', 'c', '1 hour');
SELECT extended, reason FROM fence.extend('lease-tx', 2, '2 hours');
SELECT fence.release('lease-tx', 2);
SELECT acquired, token FROM fence.acquire('lease-tx', 'c', '1 hour');
COMMIT;
SELECT * FROM lease_state WHERE resource = 'lease-tx';
SELECT i, acquired, token, reason FROM unnest(ARRAY[1, 2, 1]) WITH ORDINALITY u (i, n),
	fence.acquire('lease-many-' || i, 'a', '1 hour') ORDER BY n;

-- B11: nothing is issued, extended or released in a read-only transaction
BEGIN READ ONLY;
SAVEPOINT s;
SELECT acquired FROM fence.acquire('lease-b11', 'a');
ROLLBACK TO s;
SELECT acquired FROM fence.acquire('lease-tx', 'a');
ROLLBACK TO s;
SELECT extended FROM fence.extend('lease-tx', 3);
ROLLBACK TO s;
SELECT fence.release('lease-tx', 3);
ROLLBACK TO s;
SELECT fence.mark('lease-tx');
SELECT state FROM fence.leases WHERE resource = 'lease-tx';
COMMIT;

-- F07: no lock outlives its transaction
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();

DROP VIEW lease_state;
DROP FUNCTION expire(text);
