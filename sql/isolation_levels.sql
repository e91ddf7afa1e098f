-- REPEATABLE READ and SERIALIZABLE: the snapshot of the work must be younger
-- than the acquisition.  What needs two sessions is tested elsewhere.
\set VERBOSITY sqlstate

CREATE TABLE levels (id int PRIMARY KEY, qty int);
SELECT fence.protect('levels', 'levels');

-- Each statement and transaction works at each level.
CREATE PROCEDURE at_level(level text, resource text) LANGUAGE plpgsql AS $$
DECLARE
	presented bigint;
BEGIN
	PERFORM set_config('default_transaction_isolation', level, false);
	COMMIT;

	ASSERT current_setting('transaction_isolation') = level;
	SELECT token INTO presented FROM fence.acquire(resource, 'a', '1 hour');
	COMMIT;

	-- acquired before: present, write, extend
	PERFORM fence.check(resource, presented, 'a', 'postgres');
	DELETE FROM levels;
	INSERT INTO levels VALUES (1, presented);
	ASSERT (SELECT extended FROM fence.extend(resource, presented));
	COMMIT;

	-- and release, at the end
	PERFORM fence.check(resource, presented, 'a', 'postgres');
	UPDATE levels SET qty = qty + 1;
	ASSERT fence.release(resource, presented);
	COMMIT;
END
$$;
CALL at_level('read committed', 'levels');
CALL at_level('repeatable read', 'levels');
CALL at_level('serializable', 'levels');
RESET default_transaction_isolation;
TABLE levels;
SELECT fence.mark('levels');
DROP PROCEDURE at_level(text, text);

-- READ COMMITTED: all in one transaction
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT acquired, token FROM fence.acquire('levels', 'b', '1 hour');
SELECT fence.check('levels', 4);
UPDATE levels SET qty = 10;
SELECT fence.release('levels', 4);
COMMIT;

-- Above that: acquired in this transaction, not to be presented in it
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT acquired, token FROM fence.acquire('levels', 'b', '1 hour');
SAVEPOINT s;
SELECT fence.check('levels', 5);
ROLLBACK TO s;
UPDATE levels SET qty = 11;
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT acquired, token FROM fence.acquire('levels', 'b', '1 hour');
SELECT fence.check('levels', 5);
ROLLBACK;
-- nor within a savepoint
BEGIN ISOLATION LEVEL REPEATABLE READ;
SAVEPOINT s;
SELECT acquired, token FROM fence.acquire('levels', 'b', '1 hour');
RELEASE s;
SELECT fence.check('levels', 5);
ROLLBACK;
-- acquired after work was done
BEGIN ISOLATION LEVEL REPEATABLE READ;
CREATE TEMPORARY TABLE work (i int);
SELECT acquired FROM fence.acquire('levels', 'b', '1 hour');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT fence.check('levels-other', 1);
SELECT acquired FROM fence.acquire('levels', 'b', '1 hour');
ROLLBACK;
SELECT fence.check('levels-other', 1);
BEGIN ISOLATION LEVEL REPEATABLE READ;
-- presented, nothing written
SELECT fence.check('levels-other', 1);
SELECT acquired FROM fence.acquire('levels', 'b', '1 hour');
ROLLBACK;
SELECT fence.mark('levels');
-- two in one transaction: the second one comes after work
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT acquired FROM fence.acquire('levels-1', 'b', '1 hour');
SELECT acquired FROM fence.acquire('levels-2', 'b', '1 hour');
ROLLBACK;
-- READ COMMITTED is not asked
BEGIN ISOLATION LEVEL READ COMMITTED;
SELECT fence.check('levels-other', 1);
SELECT acquired FROM fence.acquire('levels', 'b', '1 hour');
COMMIT;

-- External tokens: present, write, all in one transaction
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT fence.check('levels-external', 1);
SELECT fence.check('levels-external', 2);
SELECT fence.mark('levels-external');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT fence.check('levels-external', 3);
SELECT fence.check('levels-external', 3);
SELECT fence.mark('levels-external');
COMMIT;
SELECT fence.mark('levels-external');
-- stale at commit
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT fence.check('levels-external', 3);
SELECT fence.raise_mark('levels-external', 9);
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT fence.check('levels-external', 3);
SELECT fence.raise_mark('levels-external', 9);
COMMIT;
SELECT fence.mark('levels-external');
-- the guard reports stale and missing tokens as at any level
BEGIN ISOLATION LEVEL SERIALIZABLE;
UPDATE levels SET qty = 12;
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
UPDATE levels SET qty = 12 WHERE fence.check('levels', 4);
ROLLBACK;
UPDATE levels SET qty = 12 WHERE fence.check('levels', 5);
TABLE levels;
DROP TABLE levels;
