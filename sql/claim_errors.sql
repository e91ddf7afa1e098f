-- Idempotency keys: what is refused, and with which SQLSTATE.  Nothing is
-- written then, and the session can go on.
--
-- Field cases: E06 E07 E10; the numbers I.. are those of the list of edge cases
-- of issue 5.
\set VERBOSITY sqlstate
SET client_min_messages = warning;

SELECT count(*) AS before FROM fence.idempotency_key \gset

-- E06, I6: no key, an empty or a blank one; in every function
SELECT call, refusal('SELECT ' || replace(call, '?', 'NULL')) AS "null", refusal('SELECT ' || replace(call, '?', '''''')) AS empty,
	refusal('SELECT ' || replace(call, '?', ''' ''')) AS blank, refusal('SELECT ' || replace(call, '?', 'E'' \t\r\n\f\x0b''')) AS blanks
FROM unnest(ARRAY['fence.claim(?)', 'fence.complete(?)', 'fence.once(?)', 'fence.claim_many(ARRAY[?])', 'fence.claim_many(ARRAY[''k'', ?])',
	'fence.lookup(?)', 'fence.admit(''claim-errors'', 1, ?)']) call;
SELECT call, refusal('SELECT ' || call)
FROM unnest(ARRAY['fence.claim(''k'', NULL)', 'fence.complete(''k'', ''1'', NULL)', 'fence.once(''k'', NULL)', 'fence.claim_many(''{k}'', NULL)',
	'fence.lookup(''k'', NULL)', 'fence.claim_many(NULL)', 'fence.claim_many(''{{a,b},{c,d}}'')', 'fence.claim_many(''{k}'', '''', ''{}'')',
	'fence.claim_many(''{k}'', requests => ARRAY[''1'', ''2'']::jsonb[])', 'fence.claim_many(''{a,b}'', requests => ARRAY[[''1''], [''2'']]::jsonb[])']) call;
SELECT refusal('SELECT fence.once('''')', 'key', 'empty'), refusal('SELECT fence.once('' '')', 'key', 'blank'),
	refusal('SELECT fence.once(NULL)', 'key', 'null'), refusal('SELECT fence.once(''k'', NULL)', 'scope', 'null');

-- E07: the limit counts bytes, whatever they are
SELECT n, refusal(format('SELECT fence.lookup(%L)', repeat('x', n))) AS same, refusal(format('SELECT fence.lookup(%L)', left(repeat(md5('x'), 20), n))) AS random
FROM unnest(ARRAY[1, 254, 255, 256]) n;
SELECT refusal(format('SELECT fence.once(%L)', repeat('x', 256)), '256', '255'), refusal(format('SELECT fence.once(%L)', repeat('x', 1000000)), '1000000', '255'),
	refusal(format('SELECT fence.once(%L)', (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i)), '6400', '255');
SELECT n, refusal(format('SELECT fence.lookup(''k'', %L)', repeat('x', n))) FROM unnest(ARRAY[512, 513]) n;
SELECT refusal(format('SELECT fence.once(''k'', %L)', repeat('x', 513)), 'scope', '513', '512');
-- characters of two bytes, where there are some
SELECT n, refusal(format('SELECT fence.lookup(%L)', repeat(convert_from('\xc3a4', getdatabaseencoding()), n)))
FROM unnest(ARRAY[127, 128]) n;
-- the longest ones do work
SELECT fence.once(repeat('x', 255), repeat('y', 512));
SELECT fence.once(repeat('x', 255), repeat('y', 512));
DELETE FROM fence.idempotency_key WHERE scope = repeat('y', 512);

-- how long a key is kept
SELECT retain, refusal(format('SELECT fence.claim(''k'', retain => %L)', retain), 'retain')
FROM unnest(ARRAY[NULL, '0', '-1 s', '999 us', '3651 days', '11 years', '178000000 years']) retain;
BEGIN;
SELECT retain, fresh FROM unnest(ARRAY['1 ms', '3650 days', '10 years 45 days', '1 month']) retain, LATERAL fence.claim(retain, retain => retain::interval) c;
SELECT key, expires_at - claimed_at = CASE key WHEN '1 month' THEN '30 days' WHEN '10 years 45 days' THEN '3645 days' ELSE key::interval END AS kept
FROM fence.keys WHERE key LIKE '1 m%' OR key LIKE '%days' ORDER BY key COLLATE "C";
ROLLBACK;

-- no jsonb
SELECT refusal('SELECT fence.claim(''k'', request => ''{'')'), refusal('SELECT fence.complete(''k'', ''nope'')'), refusal('SELECT fence.claim(''k'', request => '''')');
SELECT refusal('SELECT fence.claim()'), refusal('SELECT fence.claim(1)'), refusal('SELECT fence.once(''k'', ''s'', ''x'')');

-- each outcome has an SQLSTATE of its own: E10
BEGIN;
SELECT fresh FROM fence.claim('E10', request => '1');
SELECT fence.complete('E10', '1');
COMMIT;
SELECT refusal('SELECT fence.claim(''E10'', request => ''2'')', 'E10', 'new key') AS other_request;
SELECT fresh AS replay FROM fence.claim('E10', request => '1');
SELECT fence.claim('E10-open') IS NULL AS not_completed;
SELECT refusal('SELECT fence.complete(''E10'')', 'E10') AS not_claimed;
SELECT refusal('SELECT fence.claim_sequence(''E10'', 2)', 'E10', '1') AS gap;

-- What the errors tell: the key, where it helps its scope, and what to do.
SELECT refusal('SELECT fence.claim(''E10'', request => ''2'')', '"E10"', 'scope ""', 'new key'),
	refusal('SELECT fence.complete(''tell'', scope => ''me'')', '"tell"', '"me"', 'fence.claim()'),
	refusal($$DO 'BEGIN PERFORM fence.claim(''tell''); PERFORM fence.claim(''tell''); END'$$, '"tell"', 'fence.complete()');
-- PF103 comes with the COMMIT
\set VERBOSITY terse
BEGIN;
SELECT fresh FROM fence.claim('tell', 'me');
COMMIT;
\set VERBOSITY sqlstate

-- in a read-only transaction: only lookup
BEGIN READ ONLY;
SELECT refusal('SELECT ' || call)
FROM unnest(ARRAY['fence.claim(''E10'', request => ''1'')', 'fence.claim(''k'')', 'fence.complete(''k'')', 'fence.once(''E10'')', 'fence.claim_many(''{k}'')',
	'fence.admit(''r'', 1, ''k'')', 'fence.claim_sequence(''p'', 1)', 'fence.prune()']) call;
SELECT response FROM fence.lookup('E10');
SELECT count(*) >= 0 FROM fence.keys;
COMMIT;

-- I69: where an expression must not have an effect, PostgreSQL refuses it, and
-- in a CHECK we do; the session goes on
CREATE TABLE expressions (id int, key text);
CREATE INDEX ON expressions ((fence.once(key)));
CREATE INDEX ON expressions (id) WHERE fence.once(key);
ALTER TABLE expressions ADD COLUMN g boolean GENERATED ALWAYS AS (fence.once(key)) STORED;
CREATE TABLE expressions_of (key text) PARTITION BY LIST ((fence.once(key)));
SELECT count(*) FROM pg_attribute WHERE attrelid = 'expressions'::regclass AND attname = 'g';
ALTER TABLE expressions ADD CONSTRAINT claimed CHECK (fence.once(key));
ALTER TABLE expressions ADD CHECK (id > 0 AND (key IS NULL OR fence.claim_sequence(key, id))) NOT VALID;
CREATE TABLE expressions_2 (key text CHECK ((fence.claim(key)).fresh));
CREATE TABLE expressions_2 (key text CHECK (fence.check(key, 1)));
CREATE DOMAIN expressions_2 AS text CHECK (fence.once(VALUE));
ALTER TABLE expressions ADD CHECK (cardinality(fence.histogram_bounds()) > id);
-- one that was made all the same is refused when a row is written.  This one
-- stands for those of sessions that had not loaded the library.
ALTER FUNCTION fence.once IMMUTABLE;
ALTER TABLE expressions ADD CONSTRAINT claimed CHECK (fence.once(key));
ALTER FUNCTION fence.once VOLATILE;
\set VERBOSITY default
INSERT INTO expressions VALUES (1, 'I69') ON CONFLICT DO NOTHING;
\set VERBOSITY sqlstate
COPY expressions FROM stdin;
1	I69
\.
BEGIN;
SAVEPOINT s;
INSERT INTO expressions VALUES (1, 'I69');
ROLLBACK TO s;
SELECT fence.once('I69');
ROLLBACK;
-- what a command is given is no constraint, though there is one
PREPARE given (boolean) AS SELECT $1 AS given;
EXECUTE given(fence.once('I69-execute'));
EXECUTE given(fence.once('I69-execute'));
DEALLOCATE given;
ALTER TABLE expressions DROP CONSTRAINT claimed;
INSERT INTO expressions VALUES (1, 'I69'), (2, 'I69');
SELECT count(*) FROM fence.keys WHERE key = 'I69';
ALTER TABLE expressions ADD COLUMN d boolean DEFAULT fence.once('I69-default');
SELECT id, d FROM expressions ORDER BY id;
INSERT INTO expressions VALUES (4, 'x'), (5, 'x');
SELECT id, d FROM expressions WHERE id > 3 ORDER BY id;
-- a policy claims for the rows that it is asked about
CREATE ROLE regress_fence_policy;
GRANT USAGE ON SCHEMA fence TO regress_fence_policy;
GRANT EXECUTE ON FUNCTION fence.once TO regress_fence_policy;
GRANT SELECT ON expressions TO regress_fence_policy;
ALTER TABLE expressions ENABLE ROW LEVEL SECURITY;
CREATE POLICY claimed ON expressions USING (fence.once(key, 'I69-policy'));
SET ROLE regress_fence_policy;
SELECT id FROM expressions ORDER BY id;
SELECT id FROM expressions ORDER BY id;
RESET ROLE;
DROP TABLE expressions;
REVOKE ALL ON FUNCTION fence.once FROM regress_fence_policy;
REVOKE ALL ON SCHEMA fence FROM regress_fence_policy;
DROP ROLE regress_fence_policy;
SELECT scope, key FROM fence.idempotency_key WHERE key LIKE 'I69%' ORDER BY scope, key COLLATE "C";
SELECT count(*) FROM fence.idempotency_key WHERE scope = 'I69-policy';
DELETE FROM fence.idempotency_key WHERE scope = 'I69-policy';

-- Two keys of one id cannot be told apart.  That does not happen by itself:
-- here the row is changed by hand.
SELECT fence.once('twin', 'a');
UPDATE fence.idempotency_key SET key = 'its twin' WHERE key = 'twin';
SELECT fence.once('twin', 'a');
SELECT refusal('SELECT fence.once(''twin'', ''a'')', '"twin"'), refusal('SELECT fence.claim(''twin'', ''a'')', 'its twin'),
	refusal('SELECT fence.lookup(''twin'', ''a'')'), refusal('SELECT fence.claim_many(''{x,twin}'', ''a'')');
UPDATE fence.idempotency_key SET key = 'twin', scope = 'b' WHERE key = 'its twin';
SELECT fence.once('twin', 'a');
UPDATE fence.idempotency_key SET scope = 'a' WHERE key = 'twin';
SELECT fence.once('twin', 'a');
-- nor do rows go away under an open claim
BEGIN;
SELECT fresh FROM fence.claim('taken away');
DELETE FROM fence.idempotency_key WHERE key = 'taken away';
SELECT fence.complete('taken away');
ROLLBACK;
BEGIN;
SELECT fresh FROM fence.claim('taken away');
TRUNCATE fence.idempotency_key;
SELECT fence.complete('taken away');
ROLLBACK;
-- they may get another place, and another row theirs
BEGIN;
SELECT fresh FROM fence.claim('moves');
SELECT bool_and(fence.once('moves ' || i)) FROM generate_series(1, 300) i;
CLUSTER fence.idempotency_key USING idempotency_key_pkey;
SELECT fence.complete('moves', '"moved"');
SELECT key, response FROM fence.idempotency_key WHERE response = '"moved"';
ROLLBACK;
-- or get another shape
BEGIN;
ALTER TABLE fence.idempotency_key ADD COLUMN more int;
SELECT fence.once('k');
ROLLBACK;

-- nothing is left of what was refused
SELECT count(*) - :before AS new_keys FROM fence.idempotency_key WHERE key NOT IN ('E10', 'I69-execute', 'I69-default', 'x', 'twin');
SELECT fence.once('claim-errors');
