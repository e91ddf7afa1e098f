-- fence.admit(): a fenced and idempotent write in one round trip.
--
-- Field cases: E03
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET default_transaction_isolation = 'read committed';

CREATE TABLE inv (id int PRIMARY KEY, qty int);
INSERT INTO inv VALUES (1, 10);
SELECT fence.protect('inv', 'admit');
SELECT acquired, token FROM fence.acquire('admit', 'a', '1 hour');

-- in one statement: claim, check, write, complete
PREPARE take AS
WITH a AS MATERIALIZED (SELECT * FROM fence.admit('admit', $1, $2, '{"n": 1}')),
	w AS (UPDATE inv SET qty = qty - 1 FROM a WHERE a.fresh AND id = 1 RETURNING qty),
	d AS MATERIALIZED (SELECT fence.complete($2, jsonb_build_object('qty', w.qty), 'admit') AS response FROM w)
SELECT a.fresh, coalesce((SELECT response FROM d), a.response) AS response FROM a;
EXECUTE take(1, 'k1');
EXECUTE take(1, 'k1');
-- the key is in the scope of the resource
SELECT scope, key FROM fence.keys WHERE scope = 'admit';
SELECT response FROM fence.lookup('k1', 'admit');

-- E03: the reply was lost, and the lease has moved on: a retry of what is
-- committed replays, with whatever token; a new operation does not get in
SELECT fence.release('admit', 1);
SELECT acquired, token FROM fence.acquire('admit', 'b', '1 hour');
EXECUTE take(1, 'k1');
EXECUTE take(99, 'k1');
EXECUTE take(1, 'k2');
EXECUTE take(99, 'k2');
SELECT claimed_at IS NULL AS free FROM fence.lookup('k2', 'admit');
EXECUTE take(2, 'k2');
EXECUTE take(1, 'k2');
TABLE inv;
-- another request is refused before anything else
SELECT fence.admit('admit', 1, 'k1', '{"n": 2}');
SELECT fence.admit('admit', 2, 'k1');

-- a replay does not present the token
BEGIN;
SELECT fresh FROM fence.admit('admit', 2, 'k1', '{"n": 1}');
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
UPDATE inv SET qty = 0;
ROLLBACK;
-- a fresh one does, for the whole transaction, and must be completed
BEGIN;
SELECT * FROM fence.admit('admit', 2, 'k3');
UPDATE inv SET qty = 7;
COMMIT;
BEGIN;
SELECT * FROM fence.admit('admit', 2, 'k3');
UPDATE inv SET qty = 7;
SELECT fence.complete('k3', '7', 'admit');
SELECT * FROM fence.admit('admit', 2, 'k3');
COMMIT;
TABLE inv;
-- a refused token leaves no claim behind
BEGIN;
SAVEPOINT s;
SELECT fence.admit('admit', 1, 'k4');
ROLLBACK TO s;
COMMIT;
SELECT claimed_at IS NULL AS free FROM fence.lookup('k4', 'admit');
-- row by row in one statement
BEGIN;
SELECT i, a.fresh FROM generate_series(1, 2) i, LATERAL fence.admit('admit', 1 + i - i + 1, 'k5') a;
SELECT fence.complete('k5', scope => 'admit');
COMMIT;

-- holder and lease are those of check()
SELECT fence.admit('admit', 2, 'k6', holder => 'c');
SELECT fence.admit('admit', 2, 'k6', lease => 'redis');
BEGIN;
SELECT fresh FROM fence.admit('admit', 2, 'k6', holder => 'b', lease => 'postgres');
SELECT fence.complete('k6', scope => 'admit');
COMMIT;
SELECT fence.release('admit', 2);
SELECT fence.admit('admit', 2, 'k7', lease => 'postgres');
SELECT fresh FROM fence.admit('admit', 2, 'k6', lease => 'postgres');
-- the lease ends before the commit
SELECT acquired, token FROM fence.acquire('admit', 'c', '1 hour');
BEGIN;
SELECT fresh FROM fence.admit('admit', 3, 'k7', lease => 'postgres');
SELECT fence.break_lease('admit');
SELECT fence.complete('k7', scope => 'admit');
COMMIT;
SELECT claimed_at IS NULL AS free FROM fence.lookup('k7', 'admit');

-- tokens from elsewhere
BEGIN;
SELECT fresh FROM fence.admit('admit-external', 10, 'k');
SELECT fence.complete('k', scope => 'admit-external'), fence.mark('admit-external');
COMMIT;
SELECT fence.admit('admit-external', 9, 'k2');
SELECT fresh FROM fence.admit('admit-external', 9, 'k');

-- Without columns in the template, the guard judges statements, also those that
-- change no row.  One that was told of a replay is let go; not one that writes
-- all the same, or is another one.
UPDATE inv SET qty = 0 WHERE (SELECT fresh FROM fence.admit('admit', 1, 'k1', '{"n": 1}'));
UPDATE inv SET qty = 0 WHERE NOT (SELECT fresh FROM fence.admit('admit', 1, 'k1', '{"n": 1}'));
WITH a AS MATERIALIZED (SELECT * FROM fence.admit('admit', 1, 'k1', '{"n": 1}')) DELETE FROM inv USING a WHERE id = 1;
WITH a AS MATERIALIZED (SELECT * FROM fence.admit('admit-external', 9, 'k')) UPDATE inv SET qty = 0 FROM a WHERE a.fresh;
BEGIN;
SELECT fresh FROM fence.admit('admit', 1, 'k1', '{"n": 1}');
UPDATE inv SET qty = 0;
ROLLBACK;
-- many replays are one answer
BEGIN;
SELECT count(fence.admit('admit', 1, 'k1', '{"n": 1}')) FROM generate_series(1, 2000);
SELECT max(total_bytes) <= 65536 AS small FROM pg_backend_memory_contexts WHERE name = 'pg_fence claims';
COMMIT;
-- in a transaction that has written, nobody can tell
BEGIN;
CREATE TABLE another (i int);
EXECUTE take(1, 'k1');
ROLLBACK;
TABLE inv;

-- bad input
SELECT call, refusal('SELECT ' || call)
FROM unnest(ARRAY['fence.admit(NULL, 1, ''k'')', 'fence.admit('''', 1, ''k'')', 'fence.admit(''r'', NULL, ''k'')', 'fence.admit(''r'', 0, ''k'')',
	'fence.admit(''r'', 1, NULL)', 'fence.admit(repeat(''r'', 513), 1, ''k'')', 'fence.admit(''r'', 1, ''k'', holder => '''')']) call;
BEGIN;
SELECT fresh FROM fence.admit(repeat('r', 512), 1, repeat('k', 255));
ROLLBACK;

DEALLOCATE take;
DROP TABLE inv;
