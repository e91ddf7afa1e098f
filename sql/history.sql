-- fence.timeline(): who held a resource, and how it ended. pg_fence.history says
-- for how long that is remembered.
SET client_min_messages = warning;
SET default_transaction_isolation = 'read committed';

-- loads the library
SELECT fence.mark('history');
SELECT context, vartype, unit, boot_val FROM pg_settings WHERE name = 'pg_fence.history';

-- off by default: only who holds it now
SELECT acquired, token FROM fence.acquire('history', 'before', '1 hour');
SELECT fence.release('history', 1);
SELECT count(*) FROM fence.timeline('history');
SELECT acquired, token FROM fence.acquire('history', 'holder', '1 hour');
SELECT holder, token, ended_at, ended, held < '1 h' AS held, length(bar) FROM fence.timeline('history');

SET pg_fence.history = '7d';
-- every way to an end
SELECT fence.release('history', 2);
SELECT acquired, token FROM fence.acquire('history', 'short', '1 ms');
SELECT pg_sleep(0.01);
SELECT acquired, token FROM fence.acquire('history', 'short', '1 ms');
SELECT pg_sleep(0.01);
SELECT acquired, token FROM fence.acquire('history', 'other', '1 hour');
SELECT acquired, token FROM fence.hand_over('history', 5, 'heir', '1 hour');
SELECT fence.break_lease('history');
SELECT resource, acquired, token FROM fence.acquire_many('{history,history-2}', 'many', '1 hour');
SELECT holder, token, ended, ended_at >= acquired_at AS ordered, coalesce(ended_at, clock_timestamp()) - acquired_at - held < '1 s' AS held
FROM fence.timeline('history');
-- what did not happen leaves nothing: refused, rolled back
SELECT acquired, reason FROM fence.acquire('history', 'refused');
SELECT extended FROM fence.extend('history', 8, '1 hour');
BEGIN;
SELECT fence.release('history', 8);
ROLLBACK;
SELECT fence.release('history', 7);
SELECT count(*) FROM fence.history;
-- an expired lease that nobody has replaced yet
SELECT acquired FROM fence.acquire('history-3', 'gone', '1 ms');
SELECT pg_sleep(0.01);
SELECT holder, ended, ended_at IS NOT NULL AS has_end, held = '1 ms' AS held FROM fence.timeline('history-3');

-- not before it began, as the clock was set back
SELECT acquired FROM fence.acquire('history-4', 'late', '1 hour');
UPDATE fence.resource SET acquired_at = acquired_at + '1 day', expires_at = expires_at + '1 day' WHERE name = 'history-4';
SELECT ended, held FROM fence.timeline('history-4');
SELECT fence.release('history-4', 1);
SELECT ended, held FROM fence.timeline('history-4');
SELECT hold_total FROM fence.leases WHERE resource = 'history-4';

-- The bar: 10 characters for 10 hours. Made up, as the clock cannot be set.
INSERT INTO fence.history
SELECT 'bars', n, 'h' || n, clock_timestamp() - f - interval '1 s', clock_timestamp() - t - interval '1 s', 'released'
FROM (VALUES (1, '12 h'::interval, '8 h'::interval), (2, '8 h', '7 h 59 min'), (3, '5 h', '2 h'), (4, '2 h', '0 h'), (5, '20 h', '11 h')) v (n, f, t);
SELECT token, '|' || bar || '|' AS bar FROM fence.timeline('bars', '10 h', 10);
SELECT token, '|' || bar || '|' AS bar FROM fence.timeline('bars', '20 h 1 min', 20);
SELECT count(*) FROM fence.timeline('bars', '1 s');
-- nothing to ask for
SELECT count(*) FROM fence.timeline('no such resource');
SELECT count(*) FROM fence.timeline(NULL);
SELECT count(*) FROM fence.timeline('bars', '-1 h');
SELECT count(*) FROM fence.timeline('bars', NULL);
-- ever; there is no infinite interval before 17
SELECT CASE WHEN current_setting('server_version_num')::integer < 170000 THEN '1000 years' ELSE 'infinity' END AS ever \gset
SELECT count(*) FROM fence.timeline('bars', :'ever');
SELECT count(bar) FROM fence.timeline('bars', '1 day', NULL);
SELECT DISTINCT bar = '' AS empty FROM fence.timeline('bars', '1 day', 0);

-- Pruned: each lease that ends takes up to ten with it that are too old,
-- whatever their resource
INSERT INTO fence.history
SELECT 'old-' || i, i, 'x', clock_timestamp() - interval '9 days', clock_timestamp() - interval '8 days' - i * interval '1 s', 'released'
FROM generate_series(1, 25) i;
SET pg_fence.history = '8d';
SELECT fence.release('history', 8);
SELECT count(*), min(token), max(token) FROM fence.history WHERE resource LIKE 'old-%';
SELECT acquired FROM fence.acquire('history', 'next', '1 hour');
-- not in a serializable transaction
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT fence.release('history', 9);
COMMIT;
SELECT count(*), min(token), max(token) FROM fence.history WHERE resource LIKE 'old-%';
SELECT acquired FROM fence.acquire('history', 'next', '1 hour');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT fence.release('history', 10);
COMMIT;
SELECT fence.release('history-2', 1);
SELECT count(*) FROM fence.history WHERE resource LIKE 'old-%';
SELECT holder, ended FROM fence.timeline('history') WHERE token >= 8;
-- off again: what is there stays
SET pg_fence.history = 0;
SELECT acquired, token FROM fence.acquire('history', 'unseen', '1 hour');
SELECT fence.release('history', 11);
SELECT count(*) FROM fence.timeline('history') WHERE token = 11;

-- for superusers
CREATE ROLE regress_fence_writer;
SELECT fence.grant_writer('regress_fence_writer');
\set VERBOSITY sqlstate
SET ROLE regress_fence_writer;
SET pg_fence.history = '1d';
SELECT fence.timeline('history');
TABLE fence.history;
RESET ROLE;
-- ... and a writer needs no rights on the table
SET pg_fence.history = '8d';
SET ROLE regress_fence_writer;
SELECT acquired, token FROM fence.acquire('history', 'writer', '1 hour');
SELECT fence.release('history', 12);
RESET ROLE;
SELECT holder, ended FROM fence.timeline('history') WHERE token = 12;
RESET pg_fence.history;
SET pg_fence.history = -1;
SET pg_fence.history = '367d';
DROP OWNED BY regress_fence_writer;
DROP ROLE regress_fence_writer;
DELETE FROM fence.history;
