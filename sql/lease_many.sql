-- Several leases at once, and leases that change hands: acquire_many, hand_over,
-- break_lease.  What needs a second session is tested elsewhere.
--
-- Field cases: A01 B02 B11 F04 F05 F10
\set VERBOSITY sqlstate
SET default_transaction_isolation = 'read committed';
SET client_min_messages = warning;

CREATE FUNCTION expire(resource text) RETURNS void LANGUAGE sql AS $$
	UPDATE fence.resource SET expires_at = clock_timestamp() - interval '1 ms' WHERE name = $1
$$;
CREATE VIEW lease_state AS
	SELECT resource, holder, token, state, renewals, mark FROM fence.leases WHERE resource ~ '^(m|h|b)-' ORDER BY resource COLLATE "C";

--
-- acquire_many
--
SELECT resource, acquired, token, held_by, reason, remaining BETWEEN '59 min' AND '1 hour' AS remaining,
	expires_at - clock_timestamp() BETWEEN '59 min' AND '1 hour' AS expires
FROM fence.acquire_many('{m-b,m-a}', 'w1', '1 hour');
TABLE lease_state;
-- F10: in one order, whatever the caller's; each once
SELECT resource, acquired, token FROM fence.acquire_many('{m-d,m-c,m-d,m-C,m-c}', 'w1', '1 hour');
-- the default: 30 seconds, no wait
SELECT resource, acquired, remaining BETWEEN '15 s' AND '30 s' AS remaining FROM fence.acquire_many('{m-e}', 'w1');
-- none, where one is not free; nothing is changed
SELECT xmin AS x, ctid AS c FROM fence.resource WHERE name = 'm-c' \gset
SELECT resource, acquired, token, expires_at > clock_timestamp() AS expires, remaining > '59 min' AS remaining, held_by, reason FROM fence.acquire_many('{m-x,m-c,m-y}', 'w2', '1 hour');
SELECT fence.mark('m-x'), fence.mark('m-y');
SELECT xmin = :'x' AND ctid = :'c' AS untouched FROM fence.resource WHERE name = 'm-c';
-- not even by the same holder, nor after a wait
SELECT resource, acquired, held_by, reason FROM fence.acquire_many('{m-a,m-x}', 'w1', '1 hour');
SELECT resource, acquired, held_by, reason FROM fence.acquire_many('{m-x,m-a}', 'w2', '1 hour', '20 ms');
SELECT count(*) FROM fence.resource WHERE name LIKE 'm-x';
-- a refused attempt writes nothing and keeps no lock
BEGIN;
SELECT acquired FROM fence.acquire_many('{m-a,m-x}', 'w2');
SELECT acquired FROM fence.acquire_many('{m-Z,m-a}', 'w2');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
-- free again: all, each with its own next token
SELECT fence.release('m-a', 1), expire('m-b');
SELECT fence.check('m-x', 40);
SELECT resource, acquired, token FROM fence.acquire_many('{m-x,m-b,m-a}', 'w2', '1 hour');
SELECT fence.check('m-a', 1);
SELECT fence.check('m-b', 2, 'w2', 'postgres'), fence.check('m-x', 41, 'w2', 'postgres');
-- they are leases like others
SELECT extended, reason FROM fence.extend('m-b', 2, '2 hours');
SELECT fence.release('m-x', 41);
SELECT acquired, reason FROM fence.acquire('m-b', 'w3');
TABLE lease_state;
-- B02: gone with the transaction, or the savepoint, together with the locks
BEGIN;
SELECT resource, acquired, token FROM fence.acquire_many('{m-r1,m-r2}', 'w1');
ROLLBACK;
SELECT fence.mark('m-r1'), fence.mark('m-r2');
BEGIN;
SAVEPOINT s;
SELECT resource, acquired, token FROM fence.acquire_many('{m-r1,m-r2}', 'w1');
ROLLBACK TO s;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT resource, acquired, token FROM fence.acquire_many('{m-r2,m-r3}', 'w1');
SELECT resource, acquired, held_by, reason FROM fence.acquire_many('{m-r1,m-r3}', 'w1');
COMMIT;
SELECT fence.mark('m-r1'), fence.mark('m-r2'), fence.mark('m-r3');
-- used in the same transaction; moved up by acquiring again
BEGIN;
SELECT acquired, token FROM fence.acquire_many('{m-t1,m-t2}', 'w1', '1 hour');
SELECT fence.check('m-t1', 1), fence.check('m-t2', 1);
SELECT fence.release('m-t1', 1);
SELECT acquired, token FROM fence.acquire_many('{m-t1}', 'w1', '1 hour');
SELECT fence.check('m-t1', 2);
COMMIT;
-- refused: what this transaction has presented and released before stays
BEGIN;
SELECT fence.check('m-t2', 1), fence.release('m-t2', 1);
SELECT resource, acquired, token, reason FROM fence.acquire_many('{m-t2,m-t1}', 'w2', '1 hour');
SELECT fence.check('m-t2', 1);
COMMIT;
SELECT * FROM lease_state WHERE resource LIKE 'm-t_';
-- no resources, no rows; an array of arrays is an array
SELECT * FROM fence.acquire_many('{}', 'w1');
SELECT resource, acquired FROM fence.acquire_many('{{m-n2,m-n1},{m-n1,m-n3}}', 'w1');
-- many of them
SELECT count(*), bool_and(acquired), min(token), max(token) FROM fence.acquire_many(ARRAY(SELECT 'm-many-' || i FROM generate_series(1, 500) i), 'w1');
SELECT count(*), count(*) FILTER (WHERE acquired), count(*) FILTER (WHERE reason = 'not all'), count(*) FILTER (WHERE reason = 'held')
FROM fence.acquire_many(ARRAY(SELECT 'm-many-' || i FROM generate_series(500, 600) i), 'w1');
DELETE FROM fence.resource WHERE name LIKE 'm-many-%';
-- as in any query
SELECT a.token FROM fence.acquire_many('{m-q1,m-q2}', 'w1') a WHERE a.resource = 'm-q2';
SELECT resource, c FROM fence.acquire_many('{m-q3,m-q4}', 'w1') a, fence.check(a.resource, a.token) c;

-- wrong arguments change nothing (F04)
SELECT a, refusal('SELECT fence.acquire_many(' || a || ')')
FROM unnest(ARRAY[$$NULL, 'w'$$, $$'{m-w,NULL}', 'w'$$, $$'{m-w,""}', 'w'$$, $$ARRAY['m-w', repeat('x', 513)], 'w'$$,
	$$'{m-w}', NULL$$, $$'{m-w}', ''$$, $$'{m-w}', repeat('x', 513)$$,
	$$'{m-w}', 'w', NULL$$, $$'{m-w}', 'w', '0'$$, $$'{m-w}', 'w', '-1 s'$$, $$'{m-w}', 'w', '999 us'$$, $$'{m-w}', 'w', '25 hours'$$, $$'{m-w}', 'w', '100 years'$$,
	$$'{m-w}', 'w', '1 s', NULL$$, $$'{m-w}', 'w', '1 s', '-1 ms'$$, $$'{m-w}', 'w', '1 s', '301 s'$$]) a;
SELECT fence.mark('m-w');
-- an exhausted resource among them: an error, and nothing of the others
SELECT fence.check('m-max', 9223372036854775807);
SELECT acquired FROM fence.acquire_many('{m-1,m-max}', 'w1');
SELECT fence.mark('m-1');
-- a long wait takes no memory: an attempt forgets what the one before has read
SELECT count(fence.check(repeat('l', 500) || i, 1)) FROM generate_series(1, 100) i;
SELECT acquired FROM fence.acquire('m-held', 'other', '1 hour');
SELECT acquired, reason, (SELECT sum(total_bytes) < 1024 * 1024 FROM pg_backend_memory_contexts WHERE name IN ('ExprContext', 'pg_fence acquire')) AS small
FROM fence.acquire_many(ARRAY(SELECT repeat('l', 500) || i FROM generate_series(1, 100) i) || 'm-held'::text, 'w1', wait => '500 ms') LIMIT 1;
DELETE FROM fence.resource WHERE name LIKE 'lll%';
-- a statement that fails later takes them back, and the transaction goes on
BEGIN;
SAVEPOINT s;
SELECT 1 / (token - 1) FROM fence.acquire_many('{m-f1,m-f2}', 'w1');
ROLLBACK TO s;
SELECT fence.mark('m-f1');
COMMIT;
-- B11; and isolation levels
BEGIN READ ONLY;
SELECT acquired FROM fence.acquire_many('{m-ro}', 'w1');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT acquired FROM fence.acquire_many('{m-rr1,m-rr2}', 'w1');
SAVEPOINT s;
SELECT fence.check('m-rr1', 1);
ROLLBACK TO s;
SELECT acquired FROM fence.acquire_many('{m-rr3}', 'w1');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT fence.check('m-rr1', 1);
SELECT acquired FROM fence.acquire_many('{m-rr3}', 'w1');
COMMIT;

--
-- hand_over
--
SELECT acquired, token FROM fence.acquire('h-1', 'a', '1 hour', request_id => 'q');
SELECT acquired, token, held_by, reason, remaining BETWEEN '119 min' AND '2 hours' AS remaining FROM fence.hand_over('h-1', 1, 'b', '2 hours');
SELECT * FROM lease_state WHERE resource = 'h-1';
-- the old token is out, also for writes; the new one is the holder's
SELECT fence.check('h-1', 1);
SELECT fence.check('h-1', 2, 'a');
SELECT fence.check('h-1', 2, 'b', 'postgres');
SELECT extended, reason FROM fence.extend('h-1', 1);
SELECT fence.release('h-1', 1);
SELECT acquired, held_by, reason FROM fence.acquire('h-1', 'a', '1 hour', request_id => 'q');
-- handed on, and to oneself; the default is 30 seconds
SELECT acquired, token, held_by FROM fence.hand_over('h-1', 2, 'c', '1 hour');
SELECT acquired, token, held_by, remaining BETWEEN '15 s' AND '30 s' AS remaining FROM fence.hand_over('h-1', 3, 'c');
-- what cannot be handed over is not, and nothing is changed: not one's own, superseded, unknown;
-- as with acquire, the row names who holds it
SELECT xmin AS x, ctid AS c FROM fence.resource WHERE name = 'h-1' \gset
SELECT h.acquired, h.token, h.expires_at = l.expires_at AS expires_at, h.remaining BETWEEN '15 s' AND '30 s' AS remaining, held_by, reason
	FROM fence.hand_over('h-1', 3, 'd') h, fence.leases l WHERE l.resource = 'h-1';
SELECT acquired, token, held_by, reason FROM fence.hand_over('h-1', 5, 'd');
SELECT acquired, token, held_by, reason FROM fence.hand_over('h-unknown', 1, 'd');
SELECT fence.check('h-external', 5);
SELECT acquired, token, held_by, reason FROM fence.hand_over('h-external', 5, 'd');
BEGIN;
SELECT acquired FROM fence.hand_over('h-1', 1, 'd');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT xmin = :'x' AND ctid = :'c' AS untouched FROM fence.resource WHERE name = 'h-1';
SELECT fence.mark('h-unknown'), fence.mark('h-external');
-- expired, released
SELECT expire('h-1');
SELECT acquired, token, held_by, reason FROM fence.hand_over('h-1', 4, 'd');
SELECT acquired, token FROM fence.acquire('h-1', 'a', '1 hour');
SELECT fence.release('h-1', 5);
SELECT acquired, token, held_by, reason FROM fence.hand_over('h-1', 5, 'd');
-- a mark raised over the lease
SELECT acquired, token FROM fence.acquire('h-1', 'a', '1 hour');
SELECT fence.raise_mark('h-1', 10);
SELECT acquired, token, held_by, reason FROM fence.hand_over('h-1', 6, 'd');
-- rolled back: the old holder goes on
SELECT acquired, token FROM fence.acquire('h-2', 'a', '1 hour');
BEGIN;
SELECT acquired, token FROM fence.hand_over('h-2', 1, 'b', '1 hour');
ROLLBACK;
SELECT fence.check('h-2', 1, 'a', 'postgres');
SELECT * FROM lease_state WHERE resource = 'h-2';
-- at the end of the work: what was done under the old token commits with the new one
CREATE TABLE work (id int);
SELECT fence.protect('work', 'h-2', lease => 'postgres');
BEGIN;
SELECT fence.check('h-2', 1);
INSERT INTO work VALUES (1);
SELECT acquired, token FROM fence.hand_over('h-2', 1, 'b', '1 hour');
INSERT INTO work VALUES (2);
SAVEPOINT s;
SELECT fence.check('h-2', 1);
ROLLBACK TO s;
COMMIT;
TABLE work;
SELECT * FROM lease_state WHERE resource = 'h-2';
-- without having presented anything, the new one has to be presented
BEGIN;
SELECT acquired, token FROM fence.hand_over('h-2', 2, 'c', '1 hour');
SAVEPOINT s;
INSERT INTO work VALUES (3);
ROLLBACK TO s;
SELECT fence.check('h-2', 3, 'c');
INSERT INTO work VALUES (3);
COMMIT;
TABLE work;
DROP TABLE work;
-- wrong arguments
SELECT a, refusal('SELECT fence.hand_over(' || a || ')')
FROM unnest(ARRAY[$$NULL, 3, 'w'$$, $$'', 3, 'w'$$, $$repeat('x', 513), 3, 'w'$$, $$'h-2', NULL, 'w'$$, $$'h-2', 0, 'w'$$, $$'h-2', -3, 'w'$$,
	$$'h-2', 3, NULL$$, $$'h-2', 3, ''$$, $$'h-2', 3, repeat('x', 513)$$,
	$$'h-2', 3, 'w', NULL$$, $$'h-2', 3, 'w', '0'$$, $$'h-2', 3, 'w', '999 us'$$, $$'h-2', 3, 'w', '86401 s'$$]) a;
SELECT * FROM lease_state WHERE resource = 'h-2';
-- used up
SELECT fence.check('h-max', 9223372036854775806);
SELECT acquired, token FROM fence.acquire('h-max', 'a', '1 hour');
SELECT acquired FROM fence.hand_over('h-max', 9223372036854775807, 'b');
SELECT state FROM fence.leases WHERE resource = 'h-max';
BEGIN READ ONLY;
SELECT acquired FROM fence.hand_over('h-2', 3, 'b');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT fence.check('h-2', 3);
SELECT acquired FROM fence.hand_over('h-2', 3, 'b');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT acquired, token FROM fence.hand_over('h-2', 3, 'b');
SAVEPOINT s;
SELECT fence.check('h-2', 4);
ROLLBACK TO s;
COMMIT;
SELECT fence.check('h-2', 4);

--
-- break_lease
--
SELECT acquired, token FROM fence.acquire('b-1', 'a', '1 hour');
SELECT fence.break_lease('b-1');
SELECT * FROM lease_state WHERE resource = 'b-1';
-- the holder is shut out: for writes, and of the lease
SELECT fence.check('b-1', 1);
SELECT fence.check('b-1', 1, 'a', 'postgres');
SELECT extended, reason FROM fence.extend('b-1', 1);
SELECT fence.release('b-1', 1);
SELECT acquired, reason FROM fence.hand_over('b-1', 1, 'b');
-- once is enough (F05)
SELECT fence.break_lease('b-1');
SELECT fence.mark('b-1');
-- free at once, above the mark; the lost request of before is no repetition
SELECT acquired, token FROM fence.acquire('b-1', 'b', '1 hour', request_id => 'q');
SELECT fence.break_lease('b-1');
SELECT acquired, token FROM fence.acquire('b-1', 'b', '1 hour', request_id => 'q');
SELECT fence.check('b-1', 5, 'b', 'postgres');
-- one that has run out: its holder could still write, until then
SELECT expire('b-1');
SELECT fence.check('b-1', 5);
SELECT fence.break_lease('b-1');
SELECT fence.check('b-1', 5);
-- none: released, never granted, unknown
SELECT acquired, token FROM fence.acquire('b-1', 'c', '1 hour');
SELECT fence.release('b-1', 7);
SELECT fence.check('b-external', 5);
SELECT fence.break_lease('b-1'), fence.break_lease('b-external'), fence.break_lease('b-unknown');
SELECT fence.mark('b-1'), fence.mark('b-external'), fence.mark('b-unknown');
BEGIN;
SELECT fence.break_lease('b-unknown');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
-- rolled back: the holder has noticed nothing
SELECT acquired, token FROM fence.acquire('b-2', 'a', '1 hour');
BEGIN;
SELECT fence.break_lease('b-2');
SELECT acquired, token FROM fence.acquire('b-2', 'b', '1 hour');
ROLLBACK;
SELECT fence.check('b-2', 1, 'a', 'postgres');
SELECT * FROM lease_state WHERE resource = 'b-2';
-- in a transaction that stands on the token itself: late at commit
BEGIN;
SELECT fence.check('b-2', 1);
SELECT fence.break_lease('b-2');
COMMIT;
SELECT * FROM lease_state WHERE resource = 'b-2';
SELECT refusal('SELECT fence.break_lease(NULL)'), refusal($$SELECT fence.break_lease('')$$), refusal($$SELECT fence.break_lease(repeat('x', 513))$$);
SELECT fence.break_lease('h-max');
SELECT state FROM fence.leases WHERE resource = 'h-max';
BEGIN READ ONLY;
SELECT fence.break_lease('b-2');
ROLLBACK;
-- it is logged, with the names of holder and operator
CREATE ROLE regress_fence_breaker;
GRANT USAGE ON SCHEMA fence TO regress_fence_breaker;
SET ROLE regress_fence_breaker;
SELECT fence.break_lease('b-2');
RESET ROLE;
GRANT EXECUTE ON FUNCTION fence.break_lease(text) TO regress_fence_breaker;
SET ROLE regress_fence_breaker;
\set VERBOSITY terse
SET client_min_messages = log;
SELECT fence.break_lease('b-2');
SELECT fence.break_lease('b-2');
SET client_min_messages = warning;
\set VERBOSITY sqlstate
RESET ROLE;
DROP OWNED BY regress_fence_breaker;
DROP ROLE regress_fence_breaker;
-- evict() with nobody to evict
SELECT fence.evict('b-2'), fence.evict('b-unknown');
BEGIN;
SELECT fence.check('b-external', 5);
SELECT fence.raise_mark('b-external', 6);
SELECT fence.evict('b-external');
ROLLBACK;
SELECT refusal('SELECT fence.evict(NULL)'), refusal($$SELECT fence.evict('')$$), refusal($$SELECT fence.evict(repeat('x', 513))$$);
BEGIN READ ONLY;
SELECT fence.evict('b-2');
ROLLBACK;

SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
DROP VIEW lease_state;
DROP FUNCTION expire(text);
