-- Presenting a token: what fence.check() accepts and refuses, that it binds the
-- token to the transaction, and that the token is judged again at commit.
--
-- Field cases: B04 B06 B10 B11 F01
\set VERBOSITY sqlstate
SET default_transaction_isolation = 'read committed';

-- Tokens from elsewhere: the first one becomes the mark, a higher one raises
-- it, an equal one is accepted and writes nothing, a lower one is stale (B04).
SELECT fence.mark('check'), fence.check('check', 5), fence.mark('check');
SELECT xmin AS x, ctid AS c FROM fence.resource WHERE name = 'check' \gset
SELECT fence.check('check', 5);
SELECT fence.check('check', 5);
BEGIN;
SELECT fence.check('check', 5), fence.check('check', 5);
SELECT fence.check('check', 5);
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT xmin = :'x' AND ctid = :'c' AS not_written FROM fence.resource WHERE name = 'check';
SELECT fence.check('check', 4);
SELECT fence.check('check', 9);
SELECT fence.check('check', 5);
SELECT fence.mark('check');
-- an error leaves the session as it was
SELECT fence.check('check', 9);

-- what is rolled back has moved nothing
BEGIN;
SELECT fence.check('check', 20), fence.mark('check');
ROLLBACK;
SELECT fence.mark('check'), fence.check('check', 9);

-- Tokens issued here: nothing above the last one exists.
SELECT acquired, token FROM fence.acquire('check-issued', 'a', '1 hour');
SELECT fence.check('check-issued', 1);
SELECT fence.check('check-issued', 2);
-- issued, but not to be seen any more
BEGIN;
SELECT fence.release('check-issued', 1);
SELECT acquired, token FROM fence.acquire('check-issued', 'b', '1 hour');
ROLLBACK;
SELECT fence.check('check-issued', 2);
SELECT fence.mark('check-issued');

-- Never issued at all: lower than any token there can be is wrong, not stale.
SELECT refusal($$SELECT fence.check('check-issued', 0)$$);

-- B10: one number from two issuers shows as two holders
SELECT fence.check('check-issued', 1, 'a');
SELECT fence.check('check-issued', 1, 'b');
SELECT fence.check('check-b10', 7, 'x');
SELECT fence.check('check-b10', 7, 'x');
SELECT fence.check('check-b10', 7, 'y');
SELECT fence.check('check-b10', 7);
SELECT fence.check('check-b10', 6, 'y');
SELECT fence.check('check-b10', 8, 'y');
SELECT fence.check('check-b10', 8, 'x');
-- also within one transaction
BEGIN;
SELECT fence.check('check-b10', 8);
SELECT fence.check('check-b10', 8, 'x');
ROLLBACK;
-- a mark without a holder proves nothing
SELECT fence.check('check-b10-unknown', 7);
SELECT fence.check('check-b10-unknown', 7, 'x');
SELECT fence.check('check-b10-unknown', 7, 'y');
-- but in a transaction the one that was named counts, until that is rolled back
BEGIN;
SELECT fence.check('check-b10-unknown', 7);
SAVEPOINT named;
SELECT fence.check('check-b10-unknown', 7, 'x');
SELECT fence.check('check-b10-unknown', 7);
SELECT fence.check('check-b10-unknown', 7, 'y');
ROLLBACK TO named;
SELECT fence.check('check-b10-unknown', 7, 'y');
SELECT fence.check('check-b10-unknown', 7, 'x');
ROLLBACK;

-- A lease can be asked for as well; a token from elsewhere has none.
SELECT fence.check('check-issued', 1, 'a', 'postgres');
SELECT fence.check('check-issued', 1, lease => 'postgres');
SELECT fence.check('check', 9, lease => 'postgres');
SELECT fence.check('check', 10, lease => 'postgres');
SELECT fence.check('check-no-such', 1, lease => 'postgres');
SELECT fence.mark('check'), fence.mark('check-no-such');
-- released, expired: the order still counts, the lease is over
SELECT fence.release('check-issued', 1);
SELECT fence.check('check-issued', 1);
SELECT fence.check('check-issued', 1, lease => 'postgres');
SELECT acquired, token FROM fence.acquire('check-issued', 'b', '1 hour');
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'check-issued';
SELECT fence.check('check-issued', 2);
SELECT fence.check('check-issued', 2, lease => 'postgres');

-- The lease is judged again at commit (F01).
SELECT acquired, token FROM fence.acquire('check-lease', 'a', '1 hour');
BEGIN;
SELECT fence.check('check-lease', 1, lease => 'postgres');
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'check-lease';
COMMIT;
-- also if it was asked for the second time only
BEGIN;
SELECT fence.check('check-lease', 1);
SELECT fence.check('check-lease', 1, lease => 'postgres');
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'check-lease';
COMMIT;
-- if nobody asked, it does not matter
BEGIN;
SELECT fence.check('check-lease', 1);
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'check-lease';
COMMIT;
-- a transaction may give up its own lease at the end of its work
SELECT acquired, token FROM fence.acquire('check-lease', 'a', '1 hour');
BEGIN;
SELECT fence.check('check-lease', 2, lease => 'postgres');
SELECT fence.release('check-lease', 2);
COMMIT;
SELECT state FROM fence.leases WHERE resource = 'check-lease';
-- but not claim it after that
SELECT acquired, token FROM fence.acquire('check-lease', 'a', '1 hour');
BEGIN;
SELECT fence.release('check-lease', 3);
SELECT fence.check('check-lease', 3, lease => 'postgres');
COMMIT;
SELECT state FROM fence.leases WHERE resource = 'check-lease';

-- Several resources in one transaction, in any order; one that is stale spoils all.
BEGIN;
SELECT fence.check('check-z', 3), fence.check('check-a', 1), fence.check('check-m', 2);
SELECT fence.check('check-a', 1), fence.check('check-z', 3);
COMMIT;
BEGIN;
SELECT fence.check('check-a', 2);
SELECT fence.check('check-z', 2);
COMMIT;
SELECT fence.mark('check-a'), fence.mark('check-m'), fence.mark('check-z');
SELECT count(fence.check('check-many-' || i, i)) FROM generate_series(1, 500) i;
SELECT sum(fence.mark('check-many-' || i)) FROM generate_series(1, 500) i;

-- Moving up within a transaction is for whoever raises the mark himself.
BEGIN;
SELECT fence.check('check-move', 1), fence.check('check-move', 2);
SELECT fence.check('check-move', 5);
COMMIT;
SELECT fence.mark('check-move');
-- down again: no
BEGIN;
SELECT fence.check('check-move', 6);
SELECT fence.check('check-move', 5);
COMMIT;
SELECT fence.mark('check-move');
-- work under 5 cannot go on under 7 if somebody else was there in between
BEGIN;
SELECT fence.check('check-move', 5);
SELECT fence.raise_mark('check-move', 6);
SELECT fence.check('check-move', 7);
COMMIT;
BEGIN;
SELECT fence.check('check-move', 5);
SELECT fence.raise_mark('check-move', 7);
SELECT fence.check('check-move', 7);
COMMIT;
SELECT fence.mark('check-move');
-- by acquiring again: the transaction stands on the new token from then on
SELECT acquired, token FROM fence.acquire('check-again', 'a', '1 hour');
BEGIN;
SELECT fence.check('check-again', 1);
SELECT fence.release('check-again', 1);
SELECT acquired, token FROM fence.acquire('check-again', 'a', '1 hour');
SELECT fence.check('check-again', 2);
COMMIT;
BEGIN;
SELECT fence.check('check-again', 2);
SELECT fence.release('check-again', 2);
SELECT acquired, token FROM fence.acquire('check-again', 'a', '1 hour');
SELECT fence.check('check-again', 2);
COMMIT;
SELECT fence.mark('check-again');
-- acquiring alone presents nothing
BEGIN;
SELECT fence.release('check-again', 2);
SELECT acquired, token FROM fence.acquire('check-again', 'a', '1 hour');
SELECT fence.check('check-again', 3);
COMMIT;
SELECT fence.mark('check-again');

-- Judged again at commit: the mark may have moved.
BEGIN;
SELECT fence.check('check', 9);
SELECT fence.raise_mark('check', 12);
COMMIT;
SELECT fence.mark('check');
-- under whatever hand
BEGIN;
SELECT fence.check('check', 9);
UPDATE fence.resource SET mark = 13 WHERE name = 'check';
COMMIT;
BEGIN;
SELECT fence.check('check', 9);
DELETE FROM fence.resource WHERE name = 'check';
COMMIT;
-- nothing was written there, and nothing is left of it
SELECT fence.mark('check'), fence.check('check', 9);
-- rolled back, it is nobody's business
BEGIN;
SELECT fence.check('check', 9);
SELECT fence.raise_mark('check', 12);
ROLLBACK;
SELECT fence.mark('check');

-- In one autocommitted statement: a write and its token
CREATE TABLE checked (id int PRIMARY KEY, qty int);
INSERT INTO checked VALUES (1, 0), (2, 0);
UPDATE checked SET qty = 6 WHERE id = 1 AND fence.check('check', 9);
UPDATE checked SET qty = 7 WHERE id = 1 AND fence.check('check', 8);
TABLE checked ORDER BY id;
INSERT INTO checked SELECT 3, 3 WHERE fence.check('check', 9);
INSERT INTO checked SELECT 4, 4 WHERE fence.check('check', 8);
DELETE FROM checked WHERE fence.check('check', 8);
WITH token AS MATERIALIZED (SELECT fence.check('check', 10))
UPDATE checked SET qty = qty + 1 FROM token WHERE id < 3;
TABLE checked ORDER BY id;
SELECT fence.mark('check');
-- as an argument, a default, in a prepared statement, in a function
PREPARE present(text, bigint) AS SELECT fence.check($1, $2);
EXECUTE present('check', 10);
EXECUTE present('check', 9);
EXECUTE present('check', 10);
ALTER TABLE checked ADD present boolean;
ALTER TABLE checked ALTER present SET DEFAULT fence.check('check', 9);
INSERT INTO checked VALUES (5, 5);
ALTER TABLE checked ALTER present SET DEFAULT fence.check('check', 11);
INSERT INTO checked VALUES (5, 5);
SELECT fence.mark('check');
DROP TABLE checked;

-- B11: read-only transactions
BEGIN READ ONLY;
SAVEPOINT s;
SELECT fence.check('check', 11);
ROLLBACK TO s;
SELECT fence.check('check', 99);
ROLLBACK TO s;
SELECT fence.raise_mark('check', 99);
ROLLBACK TO s;
SELECT fence.mark('check');
COMMIT;
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT fence.check('check', 11)$$, 'fence.check()');
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT * FROM fence.acquire('check', 'a')$$, 'fence.acquire()');
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT * FROM fence.extend('check', 1)$$, 'fence.extend()');
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT fence.release('check', 1)$$, 'fence.release()');
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT fence.raise_mark('check', 1)$$, 'fence.raise_mark()');
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT * FROM fence.acquire_many('{check}', 'a')$$, 'fence.acquire_many()');
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT * FROM fence.hand_over('check', 1, 'a')$$, 'fence.hand_over()');
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT fence.break_lease('check')$$, 'fence.break_lease()');
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT fence.evict('check')$$, 'fence.evict()');
SELECT refusal($$SET LOCAL transaction_read_only = on; SELECT fence.forget('1 day')$$, 'fence.forget()');

-- B11: no function ends up in a parallel worker
SELECT set_config(CASE WHEN current_setting('server_version_num')::int >= 160000
	THEN 'debug_parallel_query' ELSE 'force_parallel_mode' END, 'on', false);
SELECT fence.check('check', 11), fence.mark('check');
SELECT acquired, token FROM fence.acquire('check-parallel', 'a', '1 hour');
SELECT extended FROM fence.extend('check-parallel', 1);
SELECT state FROM fence.leases WHERE resource = 'check-parallel';
SELECT fence.release('check-parallel', 1);
SELECT fence.raise_mark('check-parallel', 2);
SELECT acquired, token FROM fence.acquire_many('{check-parallel}', 'a', '1 hour');
SELECT acquired, token FROM fence.hand_over('check-parallel', 3, 'b', '1 hour');
SELECT fence.break_lease('check-parallel'), fence.evict('check-parallel'), fence.forget('100 years');
SELECT count(*) FROM fence.audit() WHERE target = 'pg_class'::regclass;
SELECT count(*) FROM fence.protected_tables WHERE false;
SELECT count(*) FROM pg_class WHERE fence.check('check', 11) AND relname = 'pg_class';
-- I30
SELECT count(*) FROM pg_class WHERE fence.once('check-parallel') AND relname = 'pg_class';
BEGIN;
SELECT fresh FROM fence.claim('check-parallel-2');
SELECT fence.complete('check-parallel-2');
COMMIT;
SELECT key, fresh FROM fence.claim_many('{check-parallel-2,check-parallel}');
SELECT fence.claim_sequence('check-parallel', 1), fence.prune() IS NULL;
SELECT response FROM fence.lookup('check-parallel-2');
SELECT fresh FROM fence.admit('check', 11, 'check-parallel');
-- not even where somebody says that they may
CREATE FUNCTION check_parallel(text) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN RETURN fence.once($1); END';
SELECT refusal($$SELECT count(*) FROM pg_class WHERE check_parallel(relname)$$);
DROP FUNCTION check_parallel(text);
SELECT set_config(CASE WHEN current_setting('server_version_num')::int >= 160000
	THEN 'debug_parallel_query' ELSE 'force_parallel_mode' END, 'off', false);

-- raise_mark(): never down, never quietly; after a reset source (B06)
SELECT fence.check('check-b06', 500);
SELECT fence.check('check-b06', 1);
SELECT fence.check('check-b06', 2);
SELECT fence.mark('check-b06');
SELECT fence.raise_mark('check-b06', 499);
SELECT fence.raise_mark('check-b06', 500), fence.raise_mark('check-b06', 1000);
SELECT fence.mark('check-b06');
SELECT fence.check('check-b06', 999);
SELECT fence.check('check-b06', 1001);
SELECT fence.raise_mark('check-b06-new', 3);
SELECT fence.check('check-b06-new', 2);
SELECT fence.check('check-b06-new', 4);
-- a live holder is shut out at once
SELECT acquired, token FROM fence.acquire('check-shut', 'a', '1 hour');
SELECT fence.raise_mark('check-shut', 10);
SELECT fence.check('check-shut', 1);
SELECT extended, reason FROM fence.extend('check-shut', 1);
SELECT fence.release('check-shut', 1);
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'check-shut';
SELECT acquired, token FROM fence.acquire('check-shut', 'b', '1 hour');

-- no lock outlives its transaction
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
