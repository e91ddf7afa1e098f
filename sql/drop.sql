-- DROP EXTENSION: refused while tables are guarded; with CASCADE the guards go,
-- tables and columns stay.  Comes last.
--
-- Field cases: G09
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE TABLE keep (id int PRIMARY KEY, tok bigint);
CREATE TABLE keep_parted (id int, tok bigint) PARTITION BY LIST (id);
CREATE TABLE keep_1 PARTITION OF keep_parted FOR VALUES IN (1);
SELECT fence.protect('keep', 'keep', 'tok');
SELECT fence.protect('keep_parted', 'keep');
INSERT INTO keep VALUES (1, 5);

DROP EXTENSION pg_fence;
DROP SCHEMA fence;
DROP FUNCTION fence.guard();
DROP FUNCTION fence.guard() CASCADE;
DROP TABLE fence.resource;
ALTER EXTENSION pg_fence SET SCHEMA public;
UPDATE keep SET tok = 4;

-- what a transaction has presented is still judged when the judge is gone
BEGIN;
SELECT fence.check('keep', 5);
DROP EXTENSION pg_fence CASCADE;
COMMIT;
SELECT fence.mark('keep');

BEGIN;
DROP EXTENSION pg_fence CASCADE;
UPDATE keep SET tok = 1;
INSERT INTO keep_parted VALUES (1, 1);
TRUNCATE keep_1;
TABLE keep;
SELECT count(*) FROM pg_trigger WHERE tgname LIKE '~fence%';
ROLLBACK;
TABLE keep;
UPDATE keep SET tok = 1;

-- nor are claims forgotten that nobody can complete any more
BEGIN;
SELECT fresh FROM fence.claim('drop');
DROP EXTENSION pg_fence CASCADE;
COMMIT;
BEGIN;
SELECT fence.once('drop');
DROP EXTENSION pg_fence CASCADE;
CREATE EXTENSION pg_fence;
SELECT fence.once('drop');
ROLLBACK;
SELECT fence.once('drop'), fence.once('before');

-- what a guard has only observed is warned of, and a key that it has claimed for no row goes with the others
BEGIN;
SELECT fence.protect('keep', 'keep', 'tok', mode => 'observe', key_column => 'id');
INSERT INTO keep VALUES (1, 5) ON CONFLICT DO NOTHING;
UPDATE keep SET tok = 5;
DROP EXTENSION pg_fence CASCADE;
COMMIT;
-- dropped and made anew in one session
SELECT fence.mark('keep');
UPDATE keep SET tok = 1;
TABLE keep;
CREATE EXTENSION pg_fence;
SELECT count(*) FROM fence.resource;
SELECT fence.once('before');
SELECT fence.mark('keep');
UPDATE keep SET tok = 2;
SELECT fence.protect('keep', 'keep', 'tok');
UPDATE keep SET tok = 1;
UPDATE keep SET tok = 3;
SELECT acquired, token FROM fence.acquire('keep', 'a', '1 hour');
UPDATE keep SET tok = 3;
UPDATE keep SET tok = 4;
TABLE keep;

-- without guards, plain DROP is enough
SELECT fence.unprotect('keep');
DROP EXTENSION pg_fence;
DROP TABLE keep, keep_parted;
DROP SCHEMA fence;
DROP FUNCTION refusal(text, text[]);
