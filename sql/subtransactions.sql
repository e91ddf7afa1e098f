-- Savepoints and exception blocks: ROLLBACK TO restores exactly what was
-- presented and marked before; procedures that commit; the guard in all of it.
\set VERBOSITY sqlstate
SET default_transaction_isolation = 'read committed';

CREATE TABLE sub (id int PRIMARY KEY, qty int);
SELECT fence.protect('sub', 'sub');

-- presented before the savepoint: stays
BEGIN;
SELECT fence.check('sub', 1);
SAVEPOINT a;
INSERT INTO sub VALUES (1, 1);
ROLLBACK TO a;
INSERT INTO sub VALUES (1, 2);
COMMIT;
TABLE sub;

-- presented after it: goes with it, and so does the mark
BEGIN;
SAVEPOINT a;
SELECT fence.check('sub', 2), fence.mark('sub');
INSERT INTO sub VALUES (2, 2);
ROLLBACK TO a;
SELECT fence.mark('sub');
SAVEPOINT b;
INSERT INTO sub VALUES (2, 3);
ROLLBACK TO b;
SELECT fence.check('sub', 1);
INSERT INTO sub VALUES (2, 4);
COMMIT;
TABLE sub ORDER BY id;

-- released savepoints hand on what they presented, through several levels
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SAVEPOINT c;
SELECT fence.check('sub', 1);
RELEASE c;
RELEASE b;
UPDATE sub SET qty = 5 WHERE id = 2;
SAVEPOINT d;
UPDATE sub SET qty = 6 WHERE id = 2;
ROLLBACK TO d;
ROLLBACK TO a;
UPDATE sub SET qty = 7 WHERE id = 2;
COMMIT;
TABLE sub ORDER BY id;
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT fence.check('sub', 1);
RELEASE a;
UPDATE sub SET qty = 8 WHERE id = 2;
COMMIT;
TABLE sub ORDER BY id;

-- moving up after a savepoint, and back
BEGIN;
SELECT fence.check('sub', 1);
SAVEPOINT a;
SELECT fence.check('sub', 3), fence.mark('sub');
SAVEPOINT b;
SELECT fence.check('sub', 4), fence.mark('sub');
ROLLBACK TO b;
SELECT fence.mark('sub'), fence.check('sub', 3);
ROLLBACK TO a;
SELECT fence.mark('sub'), fence.check('sub', 1);
UPDATE sub SET qty = 9 WHERE id = 2;
COMMIT;
SELECT fence.mark('sub');
TABLE sub ORDER BY id;
-- a mark raised after the savepoint no longer counts at commit
BEGIN;
SELECT fence.check('sub', 1);
SAVEPOINT a;
SELECT fence.raise_mark('sub', 100);
ROLLBACK TO a;
UPDATE sub SET qty = 10 WHERE id = 2;
COMMIT;
SELECT fence.mark('sub');
-- one before it does, whatever was rolled back since
BEGIN;
SELECT fence.check('sub', 1);
SELECT fence.raise_mark('sub', 2);
SAVEPOINT a;
UPDATE sub SET qty = 11 WHERE id = 2;
ROLLBACK TO a;
COMMIT;
SELECT fence.mark('sub');

-- the demand for a lease goes with the savepoint too
SELECT acquired, token FROM fence.acquire('sub-lease', 'a', '1 hour');
BEGIN;
SELECT fence.check('sub-lease', 1);
SAVEPOINT a;
SELECT fence.check('sub-lease', 1, lease => 'postgres');
ROLLBACK TO a;
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'sub-lease';
COMMIT;
SELECT state FROM fence.leases WHERE resource = 'sub-lease';

-- a refusal within an exception block costs the block only
DO $$
BEGIN
	PERFORM fence.check('sub', 1);
	BEGIN
		PERFORM fence.check('sub-other', 7);
		UPDATE sub SET qty = -1;
		PERFORM 1 / 0;
	EXCEPTION WHEN division_by_zero THEN
		NULL;
	END;
	-- sub-other is not presented any more
	ASSERT fence.mark('sub-other') IS NULL;
	BEGIN
		PERFORM fence.check('sub', 0);
	EXCEPTION WHEN SQLSTATE '22023' THEN
		NULL;
	END;
	UPDATE sub SET qty = 12 WHERE id = 2;
END
$$;
TABLE sub ORDER BY id;
SELECT fence.mark('sub'), fence.mark('sub-other');
-- presented in a block that ends well: counts for the rest
DO $$
BEGIN
	BEGIN
		PERFORM fence.check('sub', 1);
	EXCEPTION WHEN OTHERS THEN
		RAISE;
	END;
	UPDATE sub SET qty = 13 WHERE id = 2;
END
$$;
-- in one that does not: not
DO $$
BEGIN
	BEGIN
		PERFORM fence.check('sub', 1);
		RAISE EXCEPTION 'stop';
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;
	UPDATE sub SET qty = 14 WHERE id = 2;
END
$$;
TABLE sub ORDER BY id;
-- the writer who swallows every error gets nothing through
DO $$
BEGIN
	FOR i IN 1..3 LOOP
		BEGIN
			UPDATE sub SET qty = 100 + i;
		EXCEPTION WHEN OTHERS THEN
			ASSERT SQLSTATE = 'PF002';
		END;
	END LOOP;
END
$$;
TABLE sub ORDER BY id;
-- checks in a block that is called for each row of one statement
CREATE FUNCTION sub_try(resource text, token bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fence.check($1, $2);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END
$$;
SELECT t, sub_try('sub', t), fence.mark('sub') FROM generate_series(0, 2) t;
SELECT fence.mark('sub');
BEGIN;
SELECT sub_try('sub', 1);
SELECT sub_try('sub', 2);
COMMIT;
DROP FUNCTION sub_try(text, bigint);

-- Procedures: a COMMIT ends what was presented, and judges it.
CREATE PROCEDURE sub_procedure(again boolean) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fence.check('sub', 2);
	UPDATE sub SET qty = 20 WHERE id = 1;
	COMMIT;
	IF again THEN
		PERFORM fence.check('sub', 2);
	END IF;
	UPDATE sub SET qty = 21 WHERE id = 1;
	ROLLBACK;
	UPDATE sub SET qty = 22 WHERE id = 1;
END
$$;
CALL sub_procedure(false);
TABLE sub ORDER BY id;
CALL sub_procedure(true);
TABLE sub ORDER BY id;
DROP PROCEDURE sub_procedure(boolean);
-- COMMIT AND CHAIN is an end as well
BEGIN;
SELECT fence.check('sub', 2);
UPDATE sub SET qty = 23 WHERE id = 1;
COMMIT AND CHAIN;
UPDATE sub SET qty = 24 WHERE id = 1;
ROLLBACK;
TABLE sub ORDER BY id;

-- Deferred triggers write at the very end; they are judged like the rest.
CREATE TABLE sub_log (id int);
CREATE FUNCTION sub_deferred() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE sub SET qty = qty + 1 WHERE id = NEW.id;
	RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON sub_log DEFERRABLE INITIALLY DEFERRED
	FOR EACH ROW EXECUTE FUNCTION sub_deferred();
BEGIN;
INSERT INTO sub_log VALUES (1);
COMMIT;
BEGIN;
SELECT fence.check('sub', 2);
INSERT INTO sub_log VALUES (1);
COMMIT;
TABLE sub ORDER BY id;
TABLE sub_log;
-- one that presents a token itself
CREATE OR REPLACE FUNCTION sub_deferred() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fence.check('sub', NEW.id);
	RETURN NULL;
END
$$;
INSERT INTO sub_log VALUES (1);
INSERT INTO sub_log VALUES (3);
SELECT fence.mark('sub');
DROP TABLE sub_log;
DROP FUNCTION sub_deferred();

-- Cursors: rows are fetched, and tokens presented, when they are.
BEGIN;
DECLARE c CURSOR FOR SELECT fence.check('sub', 3) FROM generate_series(1, 2);
SAVEPOINT a;
FETCH 1 FROM c;
UPDATE sub SET qty = 30 WHERE id = 1;
ROLLBACK TO a;
SAVEPOINT b;
UPDATE sub SET qty = 31 WHERE id = 1;
ROLLBACK TO b;
FETCH 1 FROM c;
UPDATE sub SET qty = 32 WHERE id = 1;
COMMIT;
TABLE sub ORDER BY id;

-- what is tried in savepoints, and rolled back, takes no memory
BEGIN;
DO $$
BEGIN
	FOR i IN 1 .. 5000 LOOP
		BEGIN
			PERFORM fence.check('sub', 3), fence.once('sub ' || i);
			RAISE EXCEPTION 'rolled back';
		EXCEPTION WHEN raise_exception THEN
		END;
	END LOOP;
END
$$;
SELECT max(total_bytes) <= 65536 AS small FROM pg_backend_memory_contexts WHERE name IN ('TopTransactionContext', 'pg_fence claims');
SELECT fence.once('sub 1');
COMMIT;
SELECT fence.once('sub 1'), fence.once('sub 2');
DELETE FROM fence.idempotency_key WHERE key IN ('sub 1', 'sub 2');

SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
DROP TABLE sub;
