-- One session that many clients share: nothing that was presented reaches the
-- next transaction, and no setting stands in for a token.
--
-- Field cases: C21 C22 F07
\set VERBOSITY sqlstate

CREATE TABLE pool (id int PRIMARY KEY, qty int, tok bigint);
INSERT INTO pool VALUES (1, 0, 0);
CREATE TABLE pool_row (id int PRIMARY KEY, qty int, tok bigint);
INSERT INTO pool_row VALUES (1, 0, 0);
SELECT fence.protect('pool', 'pool');
SELECT fence.protect('pool_row', 'pool', 'tok', 'row');

-- C21: the next client, after COMMIT, ROLLBACK, an error, a single statement
BEGIN;
SELECT fence.check('pool', 9);
UPDATE pool SET qty = 1;
COMMIT;
UPDATE pool SET qty = 2;
UPDATE pool_row SET qty = 2;
BEGIN;
UPDATE pool SET qty = 2;
ROLLBACK;
BEGIN;
SELECT fence.check('pool', 9);
ROLLBACK;
UPDATE pool SET qty = 2;
BEGIN;
SELECT fence.check('pool', 9);
SELECT 1 / 0;
COMMIT;
UPDATE pool SET qty = 2;
SELECT fence.check('pool', 9);
UPDATE pool SET qty = 2;
UPDATE pool SET qty = 3 WHERE fence.check('pool', 9);
UPDATE pool SET qty = 4;
BEGIN;
SELECT fence.check('pool', 9);
UPDATE pool SET qty = 4;
SELECT fence.raise_mark('pool', 10);
COMMIT;
UPDATE pool SET qty = 5;
-- several commands in one message are one transaction
SELECT fence.check('pool', 9) \; UPDATE pool SET qty = 6;
UPDATE pool SET qty = 7;
BEGIN \; SELECT fence.check('pool', 9) \; COMMIT \; UPDATE pool SET qty = 7;
TABLE pool;
TABLE pool_row;

-- C22: settings of any name
BEGIN;
SET LOCAL fence.token = '9';
SELECT set_config('my.token', '9', true);
UPDATE pool SET qty = 8;
ROLLBACK;
SET fence.token = '9';
SELECT set_config('my.token', '9', true);
UPDATE pool SET qty = 8;
UPDATE pool_row SET qty = 8;
BEGIN;
SAVEPOINT a;
SET LOCAL fence.token = '12';
ROLLBACK TO a;
UPDATE pool SET qty = 8;
ROLLBACK;
DISCARD ALL;
UPDATE pool SET qty = 8;

-- DISCARD ALL and friends leave the guard at work
UPDATE pool SET qty = 9 WHERE fence.check('pool', 9);
DISCARD ALL;
UPDATE pool SET qty = 10;
UPDATE pool SET qty = 10 WHERE fence.check('pool', 8);
UPDATE pool SET qty = 10 WHERE fence.check('pool', 9);
TABLE pool;
DEALLOCATE ALL;
RESET ALL;
SET SESSION AUTHORIZATION DEFAULT;
UPDATE pool SET qty = 11;

-- another role in the same session presents for itself
CREATE ROLE regress_fence_pool;
SELECT fence.grant_writer('regress_fence_pool');
GRANT ALL ON pool TO regress_fence_pool;
BEGIN;
SELECT fence.check('pool', 9);
COMMIT;
SET ROLE regress_fence_pool;
UPDATE pool SET qty = 12;
BEGIN;
SELECT fence.check('pool', 9);
UPDATE pool SET qty = 12;
COMMIT;
RESET ROLE;
UPDATE pool SET qty = 13;
TABLE pool;

-- F07: no lock stays behind
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
-- held cursors outlive their transaction, the token does not
BEGIN;
DECLARE c CURSOR WITH HOLD FOR SELECT fence.check('pool', 9) FROM generate_series(1, 3);
COMMIT;
FETCH 1 FROM c;
UPDATE pool SET qty = 14;
CLOSE c;

REVOKE ALL ON pool FROM regress_fence_pool;
DROP OWNED BY regress_fence_pool;
DROP ROLE regress_fence_pool;
DROP TABLE pool, pool_row;
