-- Retention: fence.prune(), and what fresh claims remove on their way.
--
-- The numbers I.. are those of the list of edge cases of issue 5.
\set VERBOSITY sqlstate
SET client_min_messages = warning;

-- Time passes here by changing the rows, which only their owner can do.
CREATE PROCEDURE turn_back(keys text, passed interval) LANGUAGE sql AS
	'UPDATE fence.idempotency_key SET claimed_at = claimed_at - passed, expires_at = expires_at - passed WHERE scope = ''prune'' AND key LIKE keys';
SELECT fence.prune() >= 0 AS swept;
CREATE VIEW kept AS SELECT key FROM fence.keys WHERE scope = 'prune' ORDER BY key COLLATE "C";

BEGIN;
SELECT fence.once('day', 'prune');
SELECT fresh FROM fence.claim('hour', 'prune', retain => '1 hour');
SELECT fence.complete('hour', '"first"', 'prune');
SELECT fresh FROM fence.claim('week', 'prune', retain => '7 days');
SELECT fence.complete('week', scope => 'prune');
COMMIT;
SELECT fence.prune();

-- What has expired stays for a while, a quarter of the time that it was kept
-- for, but no longer than an hour; and as long as it is there, it replays.
CALL turn_back('hour', '74 minutes');
CALL turn_back('day', '24 hours 59 minutes');
CALL turn_back('week', '7 days 59 minutes');
SELECT fence.prune();
SELECT fresh, response FROM fence.claim('hour', 'prune');
SELECT fence.once('day', 'prune');
CALL turn_back('hour', '2 minutes');
SELECT fence.prune();
TABLE kept;
CALL turn_back('day', '2 minutes');
SELECT fence.prune();
TABLE kept;
CALL turn_back('week', '2 minutes');
SELECT fence.prune();
SELECT fence.prune();
TABLE kept;
-- then the key is free
BEGIN;
SELECT fresh, response FROM fence.claim('hour', 'prune');
SELECT fence.once('day', 'prune');
ROLLBACK;

-- rolled back, nothing is gone
SELECT fence.once('back', 'prune');
CALL turn_back('back', '2 days');
BEGIN;
SELECT fence.prune();
SAVEPOINT s;
SELECT fence.once('back', 'prune');
ROLLBACK TO s;
ROLLBACK;
TABLE kept;
SELECT fence.prune();

-- what the transaction has claimed itself stays, whatever its age
BEGIN;
SELECT fresh FROM fence.claim('own', 'prune');
CALL turn_back('own', '2 days');
SELECT fence.prune();
SELECT fence.complete('own', scope => 'prune');
COMMIT;
SELECT fence.prune();
TABLE kept;

-- in batches
SELECT count(*) FILTER (WHERE fence.once('batch-' || i, 'prune')) FROM generate_series(1, 500) i;
CALL turn_back('batch-%', '2 days');
SELECT fence.prune(100), fence.prune(1), fence.prune(149);
SELECT count(*) FROM kept;
SELECT fence.prune(1000);
SELECT count(*) FROM kept;
-- live ones in between
SELECT count(*) FILTER (WHERE fence.once('mixed-' || i, 'prune')) FROM generate_series(1, 500) i;
CALL turn_back('mixed-%7', '2 days');
SELECT fence.prune(30), fence.prune(30);
SELECT count(*) FROM kept;

-- A replay prunes nothing.
SELECT count(*) FILTER (WHERE fence.once('old-' || i, 'prune')) FROM generate_series(1, 1000) i;
CALL turn_back('old-%', '2 days');
BEGIN;
SELECT count(*) FILTER (WHERE NOT fence.once('mixed-1', 'prune')) FROM generate_series(1, 1000) i;
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
SELECT count(*) FROM kept WHERE key LIKE 'old-%';
-- Fresh claims do, a little each, of whatever kind.
SELECT count(*) FILTER (WHERE fence.once('new-' || i, 'prune')) FROM generate_series(1, 1000) i;
SELECT count(*) < 1000 AS fewer FROM kept WHERE key LIKE 'old-%';
DO $$
BEGIN
	FOR i IN 1 .. 100 LOOP
		PERFORM fence.once('more-' || i || '-' || j, 'prune') FROM generate_series(1, 100) j;
		COMMIT;
		EXIT WHEN NOT EXISTS (SELECT FROM kept WHERE key LIKE 'old-%');
	END LOOP;
END
$$;
SELECT count(*) FROM kept WHERE key LIKE 'old-%';
-- nothing that is still to be kept
SELECT count(*) FROM kept WHERE key LIKE 'new-%';
SELECT fence.prune();

-- I59: the clock has been set back, and what was claimed before lies ahead
SELECT fence.once('ahead', 'prune');
CALL turn_back('ahead', '-10 days');
SELECT fence.prune();
SELECT fence.once('ahead', 'prune');
-- ... or has jumped, and all has expired: it replays for as long as it is there
CALL turn_back('ahead', '30 days');
SELECT fence.once('ahead', 'prune');
SELECT fence.prune();
SELECT count(*) FROM kept WHERE key = 'ahead';

-- bad input
SELECT n, refusal(format('SELECT fence.prune(%s)', n)) FROM unnest('{"NULL",0,-1,2147483648}'::text[]) n;

DROP VIEW kept;
DROP PROCEDURE turn_back(text, interval);
