-- The user's own triggers next to the guard: whatever they make of a row, what
-- is stored never goes down, and what they write elsewhere is judged there.
--
-- Field cases: C02 C04 C05 C12 C15
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE TABLE trg (id int PRIMARY KEY, shelf text NOT NULL DEFAULT 'x', qty int, tok bigint);
CREATE TABLE rowtrg (id int PRIMARY KEY, shelf text NOT NULL DEFAULT 'x', qty int, tok bigint);
SELECT fence.protect('trg', 'trg:{shelf}', 'tok');
SELECT fence.protect('rowtrg', 'rowtrg:{shelf}', 'tok', 'row');
INSERT INTO trg (id, qty, tok) VALUES (1, 1, 5);
INSERT INTO rowtrg (id, qty, tok) VALUES (1, 1, 5);

-- what a trigger does is given in its arguments: column, value
CREATE FUNCTION put() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF TG_ARGV[0] = 'nothing' THEN
		RETURN NULL;
	END IF;
	NEW := jsonb_populate_record(NEW, jsonb_build_object(TG_ARGV[0], TG_ARGV[1]));
	RETURN NEW;
END
$$;

-- C04: a trigger that fires earlier sets the token; the column is not in SET
CREATE TRIGGER early BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('tok', '0');
CREATE TRIGGER early BEFORE INSERT OR UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION put('tok', '0');
UPDATE trg SET qty = 2;
UPDATE rowtrg SET qty = 2;
UPDATE trg SET qty = 2, tok = 6;
UPDATE rowtrg SET qty = 2, tok = 6;
BEGIN;
SELECT fence.check('trg:x', 6), fence.check('rowtrg:x', 6);
UPDATE trg SET qty = 2;
UPDATE rowtrg SET qty = 2;
COMMIT;
SELECT trg.tok, rowtrg.tok FROM trg, rowtrg;
-- the same on INSERT: 0 is a token that somebody set
INSERT INTO trg (id, tok) VALUES (2, 6);
INSERT INTO rowtrg (id, tok) VALUES (2, 6);
-- one that sets an honest one
CREATE OR REPLACE TRIGGER early BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('tok', '7');
CREATE OR REPLACE TRIGGER early BEFORE INSERT OR UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION put('tok', '7');
UPDATE trg SET qty = 3;
UPDATE rowtrg SET qty = 3;
UPDATE trg SET qty = 3, tok = 6;
UPDATE rowtrg SET qty = 3, tok = 6;
INSERT INTO trg (id) VALUES (2);
INSERT INTO rowtrg (id) VALUES (2);
SELECT tok, count(*) FROM (SELECT tok FROM trg UNION ALL SELECT tok FROM rowtrg) x GROUP BY tok ORDER BY tok;
-- one that changes the resource: the guard sees the row as it will be
CREATE OR REPLACE TRIGGER early BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('shelf', 'y');
CREATE OR REPLACE TRIGGER early BEFORE INSERT OR UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION put('shelf', 'y');
UPDATE trg SET qty = 4, tok = 7 WHERE id = 1;
UPDATE rowtrg SET qty = 4, tok = 7 WHERE id = 1;
BEGIN;
SELECT fence.check('trg:x', 7), fence.check('rowtrg:x', 7);
UPDATE trg SET qty = 4, tok = 8 WHERE id = 1;
UPDATE rowtrg SET qty = 4, tok = 8 WHERE id = 1;
COMMIT;
SELECT * FROM trg UNION ALL SELECT * FROM rowtrg ORDER BY id, tok;
SELECT fence.mark('trg:x'), fence.mark('trg:y');
-- one that suppresses the row
CREATE OR REPLACE TRIGGER early BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('nothing');
UPDATE trg SET qty = 5;
INSERT INTO trg (id) VALUES (3);
DROP TRIGGER early ON trg;
DROP TRIGGER early ON rowtrg;

-- C05: one that fires after the guard
CREATE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('tok', '0');
CREATE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION put('tok', '0');
UPDATE trg SET tok = 9 WHERE id = 1;
UPDATE rowtrg SET tok = 9 WHERE id = 1;
INSERT INTO trg (id, tok) VALUES (3, 9);
INSERT INTO rowtrg (id, tok) VALUES (3, 9);
MERGE INTO rowtrg r USING (VALUES (1), (3)) v (id) ON r.id = v.id
	WHEN MATCHED THEN UPDATE SET tok = 9 WHEN NOT MATCHED THEN INSERT (id, tok) VALUES (v.id, 9);
-- ... sets it to NULL
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('tok');
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION put('tok');
UPDATE trg SET tok = 9 WHERE id = 1;
UPDATE rowtrg SET tok = 9 WHERE id = 1;
INSERT INTO trg (id, tok) VALUES (3, 9);
INSERT INTO rowtrg (id, tok) VALUES (3, 9);
-- ... lower than the row holds
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('tok', '6');
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION put('tok', '6');
UPDATE trg SET tok = 9 WHERE id = 1;
UPDATE rowtrg SET tok = 9 WHERE id = 1;
-- ... higher than what was presented
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('tok', '1000');
UPDATE trg SET tok = 9 WHERE id = 1;
INSERT INTO trg (id, tok) VALUES (3, 9);
-- ... another resource
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('shelf', 'z');
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION put('shelf', 'z');
SELECT fence.check('rowtrg:z', 50);
UPDATE trg SET tok = 9 WHERE id = 1;
UPDATE rowtrg SET tok = 9 WHERE id = 1;
INSERT INTO trg (id, tok) VALUES (3, 9);
INSERT INTO rowtrg (id, tok) VALUES (3, 9);
-- the old resource's token does not help with the new one, both do
BEGIN;
SELECT fence.check('rowtrg:y', 8);
SAVEPOINT s;
UPDATE rowtrg SET tok = 9 WHERE id = 1;
ROLLBACK TO s;
UPDATE rowtrg SET tok = 50 WHERE id = 1;
SELECT shelf, tok FROM rowtrg WHERE id = 1;
ROLLBACK;
-- ... none at all: the row is not written; the row mark does not move
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('nothing');
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION put('nothing');
UPDATE trg SET qty = 100, tok = 9 WHERE id = 1;
UPDATE rowtrg SET qty = 100, tok = 9 WHERE id = 1;
SELECT fence.mark('trg:y');
-- ... nothing that matters
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION put('qty', '77');
CREATE OR REPLACE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION put('qty', '77');
UPDATE trg SET tok = 9 WHERE id = 1;
UPDATE rowtrg SET tok = 9 WHERE id = 1;
SELECT * FROM trg UNION ALL SELECT * FROM rowtrg ORDER BY id, tok;
DROP TRIGGER "~~late" ON trg;
DROP TRIGGER "~~late" ON rowtrg;
-- without a token column the guard looks at the row as it was written, too
CREATE TABLE shelf (id int, shelf text);
SELECT fence.protect('shelf', 'shelf:{shelf}');
CREATE TRIGGER "~~late" BEFORE INSERT ON shelf FOR EACH ROW EXECUTE FUNCTION put('shelf', 'real');
BEGIN;
SELECT fence.check('shelf:claimed', 1);
INSERT INTO shelf VALUES (1, 'claimed');
ROLLBACK;
BEGIN;
SELECT fence.check('shelf:real', 1);
INSERT INTO shelf VALUES (1, 'claimed');
COMMIT;
TABLE shelf;
DROP TABLE shelf;

-- C12: triggers that write to the table of the guard, and to its own row
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF pg_trigger_depth() = 1 THEN
		EXECUTE format('UPDATE %I SET qty = qty + 1 WHERE id = 2', TG_TABLE_NAME);
	END IF;
	RETURN NEW;
END
$$;
CREATE TRIGGER touch AFTER UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION touch();
CREATE TRIGGER touch AFTER UPDATE ON rowtrg FOR EACH ROW EXECUTE FUNCTION touch();
UPDATE trg SET qty = 1, tok = 10 WHERE id = 1;
UPDATE rowtrg SET qty = 1, tok = 10 WHERE id = 1;
BEGIN;
SELECT fence.check('trg:x', 10), fence.check('rowtrg:x', 10);
UPDATE trg SET qty = 1, tok = 10 WHERE id = 1;
UPDATE rowtrg SET qty = 1, tok = 10 WHERE id = 1;
COMMIT;
SELECT * FROM trg UNION ALL SELECT * FROM rowtrg ORDER BY id, tok;
DROP TRIGGER touch ON trg;
DROP TRIGGER touch ON rowtrg;
CREATE TRIGGER touch BEFORE UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION touch();
BEGIN;
SELECT fence.check('trg:x', 11), fence.check('trg:y', 11);
UPDATE trg SET qty = 2 WHERE id = 1;
COMMIT;
SELECT * FROM trg ORDER BY id;
DROP TRIGGER touch ON trg;

-- nested: a protected table whose trigger writes another protected table
CREATE TABLE audit_log (id int, qty int);
SELECT fence.protect('audit_log', 'audit');
CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO audit_log VALUES (NEW.id, NEW.qty);
	RETURN NULL;
END
$$;
CREATE TRIGGER log AFTER UPDATE ON trg FOR EACH ROW EXECUTE FUNCTION log();
UPDATE trg SET tok = 12 WHERE id = 1;
BEGIN;
SELECT fence.check('audit', 1);
UPDATE trg SET tok = 12 WHERE id = 1;
COMMIT;
TABLE audit_log;
-- the trigger presents the token itself
CREATE OR REPLACE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fence.check('audit', 1);
	INSERT INTO audit_log VALUES (NEW.id, NEW.qty);
	RETURN NULL;
END
$$;
UPDATE trg SET tok = 13 WHERE id = 1;
-- it swallows the refusal: only its own write is lost
CREATE OR REPLACE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO audit_log VALUES (NEW.id, NEW.qty);
	RETURN NULL;
EXCEPTION WHEN OTHERS THEN
	RETURN NULL;
END
$$;
UPDATE trg SET tok = 14 WHERE id = 1;
SELECT count(*) FROM audit_log;
-- it takes back a token that was presented inside
CREATE OR REPLACE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM fence.check('trg:y', 100);
		RAISE EXCEPTION 'no';
	EXCEPTION WHEN raise_exception THEN
		NULL;
	END;
	RETURN NULL;
END
$$;
UPDATE trg SET tok = 15 WHERE id = 1;
SELECT fence.mark('trg:y');
-- or moves up in the middle of the statement
CREATE OR REPLACE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fence.check('trg:y', 100 + NEW.id);
	RETURN NULL;
END
$$;
UPDATE trg SET tok = 16, qty = 3 WHERE id = 1;
SELECT fence.mark('trg:y');
DROP TRIGGER log ON trg;
DROP TABLE audit_log;

-- constraints are checked as ever, and ON CONFLICT sees what the guard has made (C02)
ALTER TABLE rowtrg ADD CHECK (qty > 0);
UPDATE rowtrg SET qty = 0, tok = 20;
UPDATE rowtrg SET qty = 0, tok = 1;
BEGIN;
SELECT fence.check('rowtrg:x', 30);
INSERT INTO rowtrg (id, qty) VALUES (2, 9) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
COMMIT;
SELECT * FROM rowtrg ORDER BY id;
-- transition tables hold the stamped rows
CREATE FUNCTION tokens() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	CREATE TEMPORARY TABLE IF NOT EXISTS seen (before bigint, after bigint);
	INSERT INTO seen SELECT o.tok, n.tok FROM o JOIN n USING (id);
	RETURN NULL;
END
$$;
CREATE TRIGGER tokens AFTER UPDATE ON rowtrg REFERENCING OLD TABLE AS o NEW TABLE AS n
	FOR EACH STATEMENT EXECUTE FUNCTION tokens();
BEGIN;
SELECT fence.check('rowtrg:x', 31);
UPDATE rowtrg SET qty = 10 WHERE id = 2;
COMMIT;
TABLE seen;
-- a later trigger drops the UPDATE of a MERGE, and another action deletes the
-- row: that has not been judged with it
CREATE TABLE droptrg (id int, region text, qty int, tok bigint);
CREATE TABLE droppart (LIKE droptrg) PARTITION BY LIST (region);
CREATE TABLE droppart_a PARTITION OF droppart FOR VALUES IN ('a');
CREATE TABLE droppart_b PARTITION OF droppart FOR VALUES IN ('b');
SELECT fence.protect('droptrg', 'drop-{id}', 'tok', 'row'), fence.protect('droppart', 'drop-{id}', 'tok', 'row');
INSERT INTO droptrg VALUES (1, 'a', 0, 5);
INSERT INTO droppart TABLE droptrg;
MERGE INTO droppart d USING (VALUES (1)) v (id) ON d.id = v.id WHEN MATCHED THEN UPDATE SET region = 'b', tok = 6;
CREATE FUNCTION drop_99() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN CASE WHEN new.qty <> 99 THEN new END; END';
CREATE TRIGGER "~~drop" BEFORE UPDATE ON droptrg FOR EACH ROW EXECUTE FUNCTION drop_99();
CREATE TRIGGER "~~drop" BEFORE UPDATE ON droppart FOR EACH ROW EXECUTE FUNCTION drop_99();
MERGE INTO droptrg d USING (VALUES (1, 99), (1, 0)) v (id, qty) ON d.id = v.id
	WHEN MATCHED AND v.qty = 99 THEN UPDATE SET qty = 99, tok = 7 WHEN MATCHED THEN DELETE;
MERGE INTO droppart d USING (VALUES (1, 99), (1, 0)) v (id, qty) ON d.id = v.id
	WHEN MATCHED AND v.qty = 99 THEN UPDATE SET qty = 99, tok = 7 WHEN MATCHED THEN DELETE;
SELECT * FROM droptrg UNION ALL TABLE droppart;
DROP TABLE droptrg, droppart;
DROP TABLE trg, rowtrg;
DROP FUNCTION put(), touch(), log(), tokens(), drop_99();
