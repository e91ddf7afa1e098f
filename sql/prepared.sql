-- Two-phase commit: PREPARE judges like COMMIT, and what it has judged stays
-- true until COMMIT PREPARED.  Needs max_prepared_transactions above 0.
--
-- Field cases: C19
\set VERBOSITY sqlstate
SET default_transaction_isolation = 'read committed';

SELECT current_setting('max_prepared_transactions')::int = 0 AS skip \gset
\if :skip
\quit
\endif

-- what waits for a prepared transaction is not to wait for ever
SET lock_timeout = '10s';
CREATE TABLE twophase (id int PRIMARY KEY, qty int, tok bigint);
SELECT fence.protect('twophase', 'twophase', 'tok');
INSERT INTO twophase VALUES (1, 0, 50);

-- C19: prepared with 100; a newer one cannot get in before that is decided
BEGIN;
UPDATE twophase SET qty = 100, tok = 100 WHERE id = 1;
PREPARE TRANSACTION 'fence_p1';
SELECT fence.mark('twophase');
SET lock_timeout = '50ms';
SELECT fence.check('twophase', 101);
UPDATE twophase SET qty = 101, tok = 101 WHERE id = 1;
SELECT fence.raise_mark('twophase', 101);
-- the older holder cannot commit either, and learns so without waiting
SELECT fence.check('twophase', 50);
SET lock_timeout = '10s';
-- rolled back: the old mark is in force
ROLLBACK PREPARED 'fence_p1';
SELECT fence.mark('twophase');
UPDATE twophase SET qty = 49, tok = 49 WHERE id = 1;
UPDATE twophase SET qty = 50, tok = 50 WHERE id = 1;
TABLE twophase;
-- committed: the new one is
BEGIN;
UPDATE twophase SET qty = 100, tok = 100 WHERE id = 1;
PREPARE TRANSACTION 'fence_p1';
COMMIT PREPARED 'fence_p1';
SELECT fence.mark('twophase');
UPDATE twophase SET qty = 99, tok = 99 WHERE id = 1;
TABLE twophase;

-- PREPARE with a token that has become stale
BEGIN;
SELECT fence.check('twophase', 100);
UPDATE twophase SET qty = 1;
SELECT fence.raise_mark('twophase', 200);
PREPARE TRANSACTION 'fence_p2';
SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'fence%';
SELECT fence.mark('twophase');
TABLE twophase;
-- without a token, nothing gets that far
BEGIN;
UPDATE twophase SET qty = 1;
PREPARE TRANSACTION 'fence_p2';

-- A prepared transaction of the old holder makes a new acquisition busy, and
-- leaves no trace in the session that prepared it.
SELECT acquired, token FROM fence.acquire('twophase-lease', 'a', '1 hour');
BEGIN;
SELECT fence.check('twophase-lease', 1, lease => 'postgres');
PREPARE TRANSACTION 'fence_p3';
UPDATE twophase SET qty = 1;
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'twophase-lease';
SELECT acquired, token, held_by, reason FROM fence.acquire('twophase-lease', 'b', '1 hour');
SELECT acquired, token, held_by, reason FROM fence.acquire('twophase-lease', 'b', '1 hour', '20 ms');
-- what was judged counts: the lease was live when it was prepared
COMMIT PREPARED 'fence_p3';
SELECT acquired, token, held_by, reason FROM fence.acquire('twophase-lease', 'b', '1 hour');
-- a lease that is over before
BEGIN;
SELECT fence.check('twophase-lease', 2, lease => 'postgres');
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'twophase-lease';
PREPARE TRANSACTION 'fence_p3';

-- An acquisition that is prepared: nobody else's until it is decided
BEGIN;
SELECT acquired, token FROM fence.acquire('twophase-acquire', 'a', '1 hour');
PREPARE TRANSACTION 'fence_p4';
SELECT acquired, token, held_by, reason FROM fence.acquire('twophase-acquire', 'b', '1 hour');
SELECT fence.mark('twophase-acquire');
COMMIT PREPARED 'fence_p4';
SELECT acquired, token, held_by, reason FROM fence.acquire('twophase-acquire', 'b', '1 hour');
SELECT fence.check('twophase-acquire', 1, 'a', 'postgres');

-- I26: an open claim is refused by PREPARE, a completed one blocks its duplicates
-- until it is decided
BEGIN;
SELECT fresh FROM fence.claim('twophase');
PREPARE TRANSACTION 'fence_p5';
BEGIN;
SELECT fresh FROM fence.claim('twophase');
SELECT fence.complete('twophase', '1'), fence.claim_sequence('twophase', 1);
PREPARE TRANSACTION 'fence_p5';
SET lock_timeout = '50ms';
SELECT fresh FROM fence.claim('twophase');
SELECT fence.claim_sequence('twophase', 1);
SELECT claimed_at IS NULL AS not_yet FROM fence.lookup('twophase');
SET lock_timeout = '10s';
ROLLBACK PREPARED 'fence_p5';
BEGIN;
SELECT fresh FROM fence.claim('twophase');
SELECT fence.complete('twophase', '2'), fence.claim_sequence('twophase', 1);
PREPARE TRANSACTION 'fence_p5';
-- what the session remembers of its claims has gone with it
SET lock_timeout = '50ms';
SELECT fence.complete('twophase', '3');
SELECT fence.once('twophase');
SET lock_timeout = '10s';
COMMIT PREPARED 'fence_p5';
SELECT fresh, response FROM fence.claim('twophase');
SELECT fence.claim_sequence('twophase', 1), fence.claim_sequence('twophase', 2);
-- the claim of a row that was not written is not prepared
SELECT fence.protect('twophase', 'twophase', key_column => 'id');
BEGIN;
SELECT fence.check('twophase', 200);
INSERT INTO twophase VALUES (1) ON CONFLICT DO NOTHING;
INSERT INTO twophase VALUES (77);
PREPARE TRANSACTION 'fence_p6';
SET lock_timeout = '50ms';
SELECT fence.once('1', 'public.twophase');
SET lock_timeout = '10s';
COMMIT PREPARED 'fence_p6';
SELECT key FROM fence.keys WHERE scope = 'public.twophase' ORDER BY key COLLATE "C";

SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'fence%';
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid > 2;
-- nothing, unless something above went wrong
SELECT format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts WHERE gid LIKE 'fence%' \gexec
DROP TABLE twophase;
