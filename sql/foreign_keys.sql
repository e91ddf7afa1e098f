-- Actions of foreign keys on protected tables: they are judged like any write,
-- and cost nothing where they find no row.
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE TABLE boss (id int PRIMARY KEY);
INSERT INTO boss SELECT generate_series(1, 5);

-- ON DELETE CASCADE, ON UPDATE CASCADE; a plain name
CREATE TABLE plain (id int REFERENCES boss ON DELETE CASCADE ON UPDATE CASCADE, qty int);
INSERT INTO plain VALUES (1, 1), (2, 2);
SELECT fence.protect('plain', 'fk-plain');
-- a table that such an action can reach is judged by its rows
SELECT tgtype & 1 AS row, tgtype & 2 AS before, tgtype & 60 AS events
FROM pg_trigger WHERE tgrelid = 'plain'::regclass AND NOT tgisinternal ORDER BY tgtype;
DELETE FROM boss WHERE id = 5;
UPDATE boss SET id = 50 WHERE id = 4;
UPDATE plain SET qty = 0 WHERE false;
DELETE FROM boss WHERE id = 1;
UPDATE boss SET id = 10 WHERE id = 1;
TABLE boss;
TABLE plain;
BEGIN;
SELECT fence.check('fk-plain', 1);
DELETE FROM boss WHERE id = 1;
UPDATE boss SET id = 20 WHERE id = 2;
COMMIT;
TABLE plain;
-- in the statement itself
DELETE FROM boss WHERE id = 20 AND fence.check('fk-plain', 1);
TABLE plain;
-- TRUNCATE of the parent comes here as well
TRUNCATE boss CASCADE;
TRUNCATE boss;
BEGIN;
SELECT fence.check('fk-plain', 1);
TRUNCATE boss CASCADE;
ROLLBACK;
DROP TABLE plain;

-- other actions do not write: a statement is judged as a whole
CREATE TABLE plain (id int REFERENCES boss, qty int);
SELECT fence.protect('plain', 'fk-plain');
SELECT tgtype & 1 AS row, tgtype & 2 AS before, tgtype & 60 AS events
FROM pg_trigger WHERE tgrelid = 'plain'::regclass AND NOT tgisinternal ORDER BY tgtype;
INSERT INTO plain SELECT 3, 3 WHERE fence.check('fk-plain', 1);
DELETE FROM boss WHERE id = 3;
INSERT INTO plain SELECT 99, 3 WHERE fence.check('fk-plain', 1);
TABLE plain;
DROP TABLE plain;

-- columns in the template; ON DELETE SET NULL, SET DEFAULT
TRUNCATE boss;
INSERT INTO boss SELECT generate_series(0, 5);
CREATE TABLE named (id int PRIMARY KEY, boss int DEFAULT 0 REFERENCES boss ON DELETE SET NULL, qty int);
INSERT INTO named VALUES (1, 1), (2, 2);
SELECT fence.protect('named', 'fk-{id}');
DELETE FROM boss WHERE id = 5;
DELETE FROM boss WHERE id = 1;
DELETE FROM boss WHERE id = 1 AND fence.check('fk-2', 1);
DELETE FROM boss WHERE id = 1 AND fence.check('fk-1', 1);
SELECT * FROM named ORDER BY id;
ALTER TABLE named DROP CONSTRAINT named_boss_fkey,
	ADD CONSTRAINT named_boss_fkey FOREIGN KEY (boss) REFERENCES boss ON DELETE SET DEFAULT;
DELETE FROM boss WHERE id = 2;
DELETE FROM boss WHERE id = 2 AND fence.check('fk-2', 1);
SELECT * FROM named ORDER BY id;
DROP TABLE named;
-- the action changes the resource: both tokens
INSERT INTO boss VALUES (1), (2);
CREATE TABLE named (boss int NOT NULL REFERENCES boss ON UPDATE CASCADE, qty int);
INSERT INTO named VALUES (1, 1);
SELECT fence.protect('named', 'fk-boss-{boss}');
UPDATE boss SET id = 11 WHERE id = 1;
BEGIN;
SELECT fence.check('fk-boss-1', 1);
SAVEPOINT s;
UPDATE boss SET id = 11 WHERE id = 1;
ROLLBACK TO s;
SELECT fence.check('fk-boss-11', 1);
UPDATE boss SET id = 11 WHERE id = 1;
COMMIT;
TABLE named;
-- the action takes the name away
ALTER TABLE named DROP CONSTRAINT named_boss_fkey, ALTER boss DROP NOT NULL,
	ADD CONSTRAINT named_boss_fkey FOREIGN KEY (boss) REFERENCES boss ON DELETE SET NULL;
DELETE FROM boss WHERE id = 11 AND fence.check('fk-boss-11', 1);
TABLE named;
DROP TABLE named;

-- a token column: the action sets none, so the one presented counts and is stamped
CREATE TABLE token (id int PRIMARY KEY, boss int REFERENCES boss ON DELETE SET NULL ON UPDATE CASCADE, tok bigint);
SELECT fence.protect('token', 'fk-token-{id}', 'tok');
INSERT INTO token VALUES (1, 2, 5);
UPDATE boss SET id = 12 WHERE id = 2;
DELETE FROM boss WHERE id = 2;
BEGIN;
SELECT fence.check('fk-token-1', 6);
UPDATE boss SET id = 12 WHERE id = 2;
COMMIT;
TABLE token;
BEGIN;
SELECT fence.check('fk-token-1', 7);
DELETE FROM boss WHERE id = 12;
COMMIT;
TABLE token;
DROP TABLE token;
CREATE TABLE token (id int PRIMARY KEY, boss int REFERENCES boss ON DELETE CASCADE, tok bigint);
SELECT fence.protect('token', 'fk-row-{id}', 'tok', 'row');
INSERT INTO token VALUES (1, 3, 5);
DELETE FROM boss WHERE id = 3;
DELETE FROM boss WHERE id = 3 AND fence.check('fk-row-1', 4);
TABLE token;
DELETE FROM boss WHERE id = 3 AND fence.check('fk-row-1', 6);
TABLE token;
SELECT fence.mark('fk-row-1'), fence.mark('fk-token-1');
DROP TABLE token;

-- a protected parent: references to it are checked without a token, changing it needs one
CREATE TABLE child (boss int REFERENCES boss ON DELETE CASCADE ON UPDATE CASCADE);
SELECT fence.protect('boss', 'fk-boss');
INSERT INTO child VALUES (4);
INSERT INTO child VALUES (98);
DELETE FROM boss WHERE id = 4;
UPDATE boss SET id = 44 WHERE id = 4;
UPDATE boss SET id = 44 WHERE id = 4 AND fence.check('fk-boss', 1);
TABLE child;
DELETE FROM boss WHERE id = 44 AND fence.check('fk-boss', 1);
TABLE child;
DROP TABLE child;

-- to itself, and deferred to the end of the transaction
CREATE TABLE tree (id int PRIMARY KEY, parent int REFERENCES tree ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED);
SELECT fence.protect('tree', 'fk-tree-{id}');
INSERT INTO tree SELECT i, nullif(i - 1, 0) FROM generate_series(1, 3) i WHERE fence.check('fk-tree-' || i, 1);
DELETE FROM tree WHERE id = 1 AND fence.check('fk-tree-1', 1);
SELECT count(*) FROM tree;
BEGIN;
SELECT fence.check('fk-tree-1', 1), fence.check('fk-tree-2', 1);
DELETE FROM tree WHERE id = 1;
COMMIT;
SELECT count(*) FROM tree;
BEGIN;
SELECT fence.check('fk-tree-1', 1), fence.check('fk-tree-2', 1), fence.check('fk-tree-3', 1);
DELETE FROM tree WHERE id = 1;
COMMIT;
SELECT count(*) FROM tree;
DROP TABLE tree, boss;

-- every action that writes, for each kind of marks; what it does to the child needs
-- the child's token, whatever the parent's is
CREATE TABLE top (id int PRIMARY KEY, alt int UNIQUE);
CREATE FUNCTION with_action(del text, upd text, marks text) RETURNS TABLE (wrote text, without text, with_it text) LANGUAGE plpgsql AS $$
BEGIN
	TRUNCATE top CASCADE;
	INSERT INTO top VALUES (0, 0), (1, 1), (2, 2);
	EXECUTE format('CREATE TABLE leaf (id int PRIMARY KEY, top int DEFAULT 0 REFERENCES top ON DELETE %s ON UPDATE %s, tok bigint)', del, upd);
	INSERT INTO leaf VALUES (1, 1, 5), (2, 2, 5);
	IF marks = 'plain' THEN
		PERFORM fence.protect('leaf', 'fk-leaf');
	ELSIF marks = 'resource' THEN
		PERFORM fence.protect('leaf', 'fk-leaf-{id}');
	ELSE
		PERFORM fence.protect('leaf', 'fk-leaf-{id}', 'tok', marks);
	END IF;
	FOREACH wrote IN ARRAY ARRAY['DELETE FROM top WHERE id = 1', 'UPDATE top SET id = 22 WHERE id = 2'] LOOP
		-- later servers tell RESTRICT apart
		without := replace(refusal(wrote), '23001', '23503');
		BEGIN
			PERFORM fence.check('fk-leaf', 6), fence.check('fk-leaf-1', 6), fence.check('fk-leaf-2', 6);
			EXECUTE wrote;
			SELECT coalesce(string_agg(format('%s:%s/%s', l.id, l.top, l.tok), ' ' ORDER BY l.id), 'none') INTO with_it FROM leaf l;
			RAISE EXCEPTION 'back';
		EXCEPTION WHEN raise_exception THEN
			NULL;
		WHEN OTHERS THEN
			with_it := replace(SQLSTATE, '23001', '23503');
		END;
		RETURN NEXT;
	END LOOP;
	DROP TABLE leaf;
END
$$;
SELECT del, marks, wrote, without, with_it
FROM unnest('{NO ACTION,RESTRICT,CASCADE,SET NULL,SET DEFAULT,SET NULL (top)}'::text[]) WITH ORDINALITY d (del, n),
	unnest('{plain,resource,row,both}'::text[]) WITH ORDINALITY m (marks, o), with_action(del, replace(del, ' (top)', ''), marks)
ORDER BY n, o, wrote COLLATE "C";
DROP FUNCTION with_action(text, text, text);

-- down several levels, through a table that is not protected, to a partitioned one
TRUNCATE top CASCADE;
INSERT INTO top VALUES (1, 1), (2, 2);
CREATE TABLE middle (id int PRIMARY KEY REFERENCES top ON DELETE CASCADE ON UPDATE CASCADE);
CREATE TABLE bottom (id int REFERENCES middle ON DELETE CASCADE ON UPDATE CASCADE, tok bigint) PARTITION BY LIST (id);
CREATE TABLE bottom_1 PARTITION OF bottom FOR VALUES IN (1);
CREATE TABLE bottom_other PARTITION OF bottom DEFAULT;
INSERT INTO middle VALUES (1), (2);
INSERT INTO bottom VALUES (1, 5), (2, 5);
SELECT fence.protect('bottom', 'fk-bottom', 'tok');
DELETE FROM top WHERE id = 1;
UPDATE top SET id = 3 WHERE id = 1;
DELETE FROM top WHERE id = 2 AND fence.check('fk-bottom', 5);
-- the row moves to another partition
UPDATE top SET id = 3 WHERE id = 1 AND fence.check('fk-bottom', 6);
SELECT tableoid::regclass, * FROM bottom;
TRUNCATE top CASCADE;
SELECT fence.protect('bottom', 'fk-bottom', 'tok', 'row');
DELETE FROM top WHERE id = 3;
UPDATE top SET id = 1 WHERE id = 3 AND fence.check('fk-bottom', 7);
DELETE FROM top WHERE id = 1 AND fence.check('fk-bottom', 6);
SELECT tableoid::regclass, * FROM bottom;
DELETE FROM top WHERE id = 1 AND fence.check('fk-bottom', 7);
TABLE bottom;
TABLE top;
DROP TABLE bottom, middle, top;

-- an action added after protect(): the statement-level guard judges it as a statement
CREATE TABLE top (id int PRIMARY KEY);
CREATE TABLE leaf (id int);
INSERT INTO top VALUES (1), (2);
INSERT INTO leaf VALUES (1);
SELECT fence.protect('leaf', 'fk-late');
ALTER TABLE leaf ADD FOREIGN KEY (id) REFERENCES top ON DELETE CASCADE;
DELETE FROM top WHERE id = 1;
DELETE FROM top WHERE id = 2;
SELECT fence.protect('leaf', 'fk-late');
DELETE FROM top WHERE id = 2;
DELETE FROM top WHERE id = 1;
DELETE FROM top WHERE id = 1 AND fence.check('fk-late', 1);
TABLE leaf;
DROP TABLE leaf, top;
