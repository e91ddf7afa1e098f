-- fence.claim_sequence(): ordered streams.
--
-- The numbers I.. are those of the list of edge cases of issue 5.
\set VERBOSITY sqlstate
SET client_min_messages = warning;

-- I53: an unknown producer begins with 1, in steps of 1
SELECT refusal($$SELECT fence.claim_sequence('p', 2)$$, '"p"', 'number 2', '1');
SELECT fence.claim_sequence('p', 1);
SELECT fence.claim_sequence('p', 1);
SELECT fence.claim_sequence('p', 2);
SELECT fence.claim_sequence('p', 2);
SELECT fence.claim_sequence('p', 1);
-- a gap names the number that is expected
SELECT refusal($$SELECT fence.claim_sequence('p', 4)$$, '"p"', 'number 4', 'is 2', 'number 3');
SELECT fence.claim_sequence('p', 9223372036854775807);
SELECT fence.claim_sequence('p', 3);
SELECT * FROM (SELECT producer, last, claimed_at <= clock_timestamp() AS past FROM fence.producers WHERE producer = 'p') p;

-- or with another first number; what is below can never come
SELECT fence.claim_sequence('from 100', 1, 100);
SELECT fence.claim_sequence('from 100', 101, 100);
SELECT fence.claim_sequence('from 100', 100, 100);
SELECT fence.claim_sequence('from 100', 101);
SELECT fence.claim_sequence('from 100', 5);
SELECT fence.claim_sequence('from 0', 0, 0);
SELECT fence.claim_sequence('from 0', 1, 0);
SELECT fence.claim_sequence('below', -9223372036854775808, -9223372036854775808);
SELECT fence.claim_sequence('below', -9223372036854775807, -9223372036854775808);
SELECT fence.claim_sequence('below', -9223372036854775808, -9223372036854775808);
-- the last number there is
SELECT fence.claim_sequence('end', 9223372036854775807, 9223372036854775807);
SELECT fence.claim_sequence('end', 9223372036854775807, 9223372036854775807);
SELECT fence.claim_sequence('end', 9223372036854775806);

-- a number that is rolled back comes again
BEGIN;
SELECT fence.claim_sequence('p', 4);
SELECT fence.claim_sequence('p', 5);
SELECT fence.claim_sequence('p', 5);
ROLLBACK;
SELECT fence.claim_sequence('p', 5);
BEGIN;
SELECT fence.claim_sequence('p', 4);
SAVEPOINT s;
SELECT fence.claim_sequence('p', 5);
ROLLBACK TO s;
SELECT fence.claim_sequence('p', 5);
SAVEPOINT s;
SELECT fence.claim_sequence('p', 6);
RELEASE s;
SELECT fence.claim_sequence('p', 6), fence.claim_sequence('p', 7);
COMMIT;
SELECT last FROM fence.producers WHERE producer = 'p';
BEGIN;
SELECT fence.claim_sequence('new', 1);
ROLLBACK;
SELECT count(*) FROM fence.producers WHERE producer = 'new';

-- the rows of one statement get one answer, loops in PL/pgSQL do not
CREATE TABLE inv (id int, qty int);
INSERT INTO inv SELECT i, 0 FROM generate_series(1, 3) i;
UPDATE inv SET qty = qty + 1 WHERE fence.claim_sequence('inv', 1);
UPDATE inv SET qty = qty + 1 WHERE fence.claim_sequence('inv', 1);
UPDATE inv SET qty = qty + 1 WHERE fence.claim_sequence('inv', 2);
SELECT DISTINCT qty FROM inv;
DO $$
DECLARE
	n int := 0;
BEGIN
	FOR i IN 1 .. 3 LOOP
		IF fence.claim_sequence('inv', 3) THEN
			n := n + 1;
		END IF;
	END LOOP;
	ASSERT n = 1;
END
$$;
-- several numbers in one statement
SELECT i, fence.claim_sequence('inv', i) FROM generate_series(2, 6) i;
SELECT i, fence.claim_sequence('inv', i) FROM generate_series(2, 6) i;
-- neither taken for a key nor the other way round
SELECT fence.once('inv 7'), fence.once('7', 'inv'), fence.claim_sequence('inv', 7);
DROP TABLE inv;

-- a duplicate writes nothing
BEGIN;
SELECT fence.claim_sequence('p', 1);
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;

-- bad input
SELECT call, refusal('SELECT ' || call)
FROM unnest(ARRAY['fence.claim_sequence(NULL, 1)', 'fence.claim_sequence('''', 1)', 'fence.claim_sequence(''p'', NULL)', 'fence.claim_sequence(''p'', 1, NULL)',
	'fence.claim_sequence(repeat(''x'', 256), 1)', 'fence.claim_sequence(''p'', 0)', 'fence.claim_sequence(''p'', 1.5)', 'fence.claim_sequence(''p'', 9223372036854775808)']) call;
SELECT fence.claim_sequence(repeat('x', 255), 1);
-- names are compared byte for byte
SELECT fence.claim_sequence(n, 1) FROM unnest('{P,"p "," p"}'::text[]) n;
SELECT count(*) FROM fence.producers WHERE producer IN ('p', 'P', 'p ', ' p');

-- one row each, updated in place
SELECT bool_and(fence.claim_sequence('hot', i)) FROM generate_series(1, 100) i;
SELECT count(*) FROM fence.producer WHERE name = 'hot' AND last = 100;
