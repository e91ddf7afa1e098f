-- fence.claim_many(): several keys at once.
--
-- Field cases: E09; the numbers I.. are those of the list of edge cases of
-- issue 5.
\set VERBOSITY sqlstate
SET client_min_messages = warning;

-- a row for each element, in their order
BEGIN;
SELECT * FROM fence.claim_many('{c,a,b}', 'many');
SELECT fence.complete(k, to_jsonb(k), 'many') FROM unnest('{a,b,c}'::text[]) k;
COMMIT;
SELECT * FROM fence.claim_many('{c,a,b}', 'many');
SELECT * FROM fence.claim_many('{}', 'many');
SELECT * FROM fence.claim_many('[5:7]={c,a,b}', 'many');
-- new ones among known ones
BEGIN;
SELECT * FROM fence.claim_many('{b,x,a,y}', 'many');
SELECT fence.complete('x', '"x"', 'many');
SELECT * FROM fence.claim_many('{b,x,a}', 'many');
SAVEPOINT s;
SELECT * FROM fence.claim_many('{b,x,a,y}', 'many');
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM fence.keys WHERE scope = 'many';

-- E09, I16: a key that comes twice is fresh once, whatever comes between
BEGIN;
SELECT * FROM fence.claim_many('{d,e,d,d,e}', 'many');
SELECT fence.complete('d', '1', 'many'), fence.complete('e', '2', 'many');
COMMIT;
SELECT * FROM fence.claim_many('{d,e,d,d,e}', 'many');
SELECT * FROM fence.claim_many('{f,f}', 'many', ARRAY['1', '2']::jsonb[]);
SELECT * FROM fence.claim_many('{f,f}', 'many', ARRAY['1', NULL]::jsonb[]);
BEGIN;
SELECT * FROM fence.claim_many('{f,f,g}', 'many', ARRAY['1', '1.0', NULL]::jsonb[]);
SELECT fence.complete('f', scope => 'many'), fence.complete('g', scope => 'many');
COMMIT;

-- requests
SELECT * FROM fence.claim_many('{f,g}', 'many', ARRAY['1', NULL]::jsonb[]);
SELECT * FROM fence.claim_many('{f,g}', 'many');
SELECT * FROM fence.claim_many('{g,f}', 'many', ARRAY[NULL, '2']::jsonb[]);
SELECT fresh, response FROM fence.claim('f', 'many', '1.00');
-- one that is refused takes the others along
SELECT * FROM fence.claim_many('{new-1,f,new-2}', 'many');
SELECT claimed_at IS NULL AS free FROM fence.lookup('new-1', 'many');

-- all of them have to be completed
SELECT count(*) FROM fence.claim_many('{h,i}', 'many');
BEGIN;
SELECT count(*) FROM fence.claim_many('{h,i}', 'many');
SELECT fence.complete('h', scope => 'many');
COMMIT;
SELECT count(*) FROM fence.keys WHERE scope = 'many' AND key IN ('h', 'i');

-- in one statement with their completion, and again
CREATE TABLE message (id int PRIMARY KEY, applied int NOT NULL DEFAULT 0);
INSERT INTO message SELECT i FROM generate_series(1, 1000) i;
PREPARE apply(int, int) AS
WITH c AS MATERIALIZED (SELECT key::int AS id, fresh FROM fence.claim_many((SELECT array_agg(i::text) FROM generate_series($1, $2) i), 'message')),
	w AS (UPDATE message m SET applied = applied + 1 FROM c WHERE c.fresh AND m.id = c.id RETURNING m.id),
	d AS MATERIALIZED (SELECT fence.complete(w.id::text, to_jsonb(w.id), 'message') AS response FROM w)
SELECT count(*) FILTER (WHERE fresh) AS fresh, count(*) AS all, (SELECT count(*) FROM d) AS completed FROM c;
EXECUTE apply(1, 500);
EXECUTE apply(1, 500);
EXECUTE apply(251, 1000);
EXECUTE apply(900, 1001);
EXECUTE apply(1, 1000);
SELECT applied, count(*) FROM message GROUP BY applied;
DEALLOCATE apply;
DROP TABLE message;
-- a join tells a row's key from a column of that name
SELECT c.key, c.fresh, m.n FROM fence.claim_many('{d,e}', 'many') c JOIN (VALUES ('d', 1), ('e', 2)) m (key, n) ON m.key = c.key ORDER BY 1;
