-- Key columns: every way to write a row.  No statement loses a row, or applies
-- half of an operation, and no key is used up by what was not written.
--
-- Field cases: C01; the numbers I.. are those of the list of edge cases of
-- issue 5.
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET default_transaction_isolation = 'read committed';

-- Tables a (error) and s (skip) are the same otherwise.  Every command here is
-- run on one of them, with the token presented.
CREATE TABLE a (id int PRIMARY KEY, qty int, op text);
CREATE TABLE s (LIKE a INCLUDING ALL);
SELECT fence.protect('a', 'key-writes', key_column => 'op');
SELECT fence.protect('s', 'key-writes', key_column => 'op', on_duplicate => 'skip');
SELECT acquired, token FROM fence.acquire('key-writes', 'a', '1 day');
CREATE FUNCTION run(VARIADIC commands text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
	result text := '';
	state text;
BEGIN
	PERFORM fence.check('key-writes', 1);
	FOR i IN 1 .. cardinality(commands) LOOP
		BEGIN
			EXECUTE commands[i];
			GET DIAGNOSTICS n = ROW_COUNT;
			result := result || ' ' || n;
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE;
			result := result || ' ' || state;
		END;
	END LOOP;
	RETURN substr(result, 2);
END
$$;
-- the same on both, one after the other
CREATE FUNCTION on_both(VARIADIC commands text[]) RETURNS TABLE (error text, skip text) LANGUAGE sql AS $$
	SELECT run(VARIADIC (SELECT array_agg(replace(c, '%', 'a') ORDER BY n) FROM unnest(commands) WITH ORDINALITY u (c, n))),
		run(VARIADIC (SELECT array_agg(replace(c, '%', 's') ORDER BY n) FROM unnest(commands) WITH ORDINALITY u (c, n)))
$$;
CREATE VIEW keys AS SELECT scope, string_agg(key, ' ' ORDER BY key COLLATE "C") AS keys
	FROM fence.keys WHERE scope IN ('public.a', 'public.s', 'public.p', 'public.child') GROUP BY scope ORDER BY scope COLLATE "C";

-- I31, I64: several rows under one key are one operation; drivers make such
-- statements of a batch
SELECT * FROM on_both($$INSERT INTO % VALUES (1, 0, 'i1'), (2, 0, 'i1'), (3, 0, 'i1')$$, $$INSERT INTO % VALUES (4, 0, 'i1')$$);
SELECT * FROM on_both($$UPDATE % SET qty = qty + 1, op = 'u1'$$, $$UPDATE % SET qty = qty + 1, op = 'u1'$$, $$UPDATE % SET qty = qty + 1, op = 'u1' WHERE id = 1$$);
-- several keys in one statement are several operations
SELECT * FROM on_both($$UPDATE % SET qty = qty + 10, op = 'u2-' || id$$, $$UPDATE % SET qty = qty + 10, op = 'u2-' || id WHERE id > 1$$);
SELECT * FROM on_both($$INSERT INTO % VALUES (5, 0, 'i2'), (6, 0, 'u1'), (7, 0, 'i2')$$);
TABLE a;
TABLE s;

-- I32: ON CONFLICT DO NOTHING, and nothing is done: the key is free
SELECT * FROM on_both($$INSERT INTO % VALUES (1, 0, 'n1') ON CONFLICT DO NOTHING$$);
SELECT * FROM keys WHERE keys LIKE '%n1%';
SELECT * FROM on_both($$INSERT INTO % VALUES (1, 0, 'n1') ON CONFLICT DO NOTHING$$, $$INSERT INTO % VALUES (10, 0, 'n1') ON CONFLICT DO NOTHING$$,
	$$INSERT INTO % VALUES (11, 0, 'n1') ON CONFLICT DO NOTHING$$);
SELECT * FROM on_both($$INSERT INTO % VALUES (1, 0, 'n2'), (12, 0, 'n2'), (1, 0, 'n2') ON CONFLICT DO NOTHING$$, $$INSERT INTO % VALUES (13, 0, 'n2') ON CONFLICT DO NOTHING$$);
-- in one transaction: taken over by a later statement, in a savepoint or not
BEGIN;
SELECT fence.check('key-writes', 1);
INSERT INTO a VALUES (1, 0, 'n3') ON CONFLICT DO NOTHING;
SAVEPOINT x;
INSERT INTO a VALUES (14, 0, 'n3');
ROLLBACK TO x;
COMMIT;
SELECT * FROM keys WHERE keys LIKE '%n3%';
BEGIN;
SELECT fence.check('key-writes', 1);
INSERT INTO a VALUES (1, 0, 'n3') ON CONFLICT DO NOTHING;
SAVEPOINT x;
INSERT INTO a VALUES (14, 0, 'n3');
RELEASE x;
SAVEPOINT x;
INSERT INTO a VALUES (15, 0, 'n3');
ROLLBACK TO x;
COMMIT;
SELECT id, op FROM a WHERE op = 'n3';

-- I33: ON CONFLICT DO UPDATE is one operation, whether it sets the column or not
SELECT * FROM on_both($$INSERT INTO % VALUES (1, 0, 'c1') ON CONFLICT (id) DO UPDATE SET qty = %.qty + 100, op = excluded.op$$,
	$$INSERT INTO % VALUES (1, 0, 'c1') ON CONFLICT (id) DO UPDATE SET qty = %.qty + 100, op = excluded.op$$);
SELECT * FROM on_both($$INSERT INTO % VALUES (1, 0, 'c2') ON CONFLICT (id) DO UPDATE SET qty = %.qty + 100$$,
	$$INSERT INTO % VALUES (1, 0, 'c2') ON CONFLICT (id) DO UPDATE SET qty = %.qty + 100$$);
SELECT * FROM on_both($$INSERT INTO % VALUES (1, 0, 'c3'), (20, 0, 'c3'), (2, 0, 'c3') ON CONFLICT (id) DO UPDATE SET qty = %.qty + 100$$,
	$$INSERT INTO % VALUES (1, 0, 'c3'), (20, 0, 'c3'), (2, 0, 'c3') ON CONFLICT (id) DO UPDATE SET qty = %.qty + 100$$);
-- where it finds the row and leaves it alone, the key is free
SELECT * FROM on_both($$INSERT INTO % VALUES (1, 0, 'c4') ON CONFLICT (id) DO UPDATE SET qty = 0 WHERE %.qty < 0$$,
	$$INSERT INTO % VALUES (21, 0, 'c4') ON CONFLICT (id) DO UPDATE SET qty = 0$$);
-- the update's key is a duplicate
SELECT * FROM on_both($$INSERT INTO % VALUES (1, 0, 'c5') ON CONFLICT (id) DO UPDATE SET qty = 0, op = 'c1'$$, $$INSERT INTO % VALUES (22, 0, 'c5')$$);
SELECT * FROM a WHERE id IN (1, 2, 20, 21, 22) ORDER BY id;
SELECT * FROM s WHERE id IN (1, 2, 20, 21, 22) ORDER BY id;

-- I35: MERGE, all arms
SELECT * FROM on_both($$MERGE INTO % t USING (VALUES (1, 'm1'), (30, 'm1'), (2, 'm1')) v (id, op) ON t.id = v.id
		WHEN MATCHED AND v.id = 2 THEN DELETE WHEN MATCHED THEN UPDATE SET qty = t.qty + 1000, op = v.op WHEN NOT MATCHED THEN INSERT VALUES (v.id, 0, v.op)$$,
	$$MERGE INTO % t USING (VALUES (1, 'm1'), (31, 'm1')) v (id, op) ON t.id = v.id
		WHEN MATCHED THEN UPDATE SET qty = t.qty + 1000, op = v.op WHEN NOT MATCHED THEN INSERT VALUES (v.id, 0, v.op)$$,
	$$MERGE INTO % t USING (VALUES (1)) v (id) ON t.id = v.id WHEN MATCHED THEN DO NOTHING$$);
-- Of several UPDATE actions only one sets the column: for the other one it
-- cannot be told, so a key that stays is not skipped but refused.
SELECT * FROM on_both($$MERGE INTO % t USING (VALUES (1)) v (id) ON t.id = v.id WHEN MATCHED AND t.qty < 0 THEN UPDATE SET op = 'm2' WHEN MATCHED THEN UPDATE SET qty = 0$$,
	$$MERGE INTO % t USING (VALUES (1)) v (id) ON t.id = v.id WHEN MATCHED AND t.qty > 0 THEN UPDATE SET op = 'm2' WHEN MATCHED THEN UPDATE SET qty = 0$$,
	$$MERGE INTO % t USING (VALUES (1)) v (id) ON t.id = v.id WHEN MATCHED THEN UPDATE SET qty = t.qty + 1$$);
SELECT * FROM a WHERE id IN (1, 2, 30, 31) ORDER BY id;
SELECT * FROM s WHERE id IN (1, 2, 30, 31) ORDER BY id;

-- I36: COPY
BEGIN;
SELECT fence.check('key-writes', 1);
COPY a FROM stdin;
40	0	y1
41	0	y1
42	0	y2
\.
COPY s FROM stdin;
40	0	y1
41	0	y1
42	0	y2
\.
COPY s FROM stdin;
43	0	y2
44	0	y3
45	0	y1
\.
COMMIT;
BEGIN;
SELECT fence.check('key-writes', 1);
COPY a FROM stdin;
43	0	y3
44	0	y2
\.
COMMIT;
SELECT id, op FROM a WHERE id BETWEEN 40 AND 49 ORDER BY id;
SELECT id, op FROM s WHERE id BETWEEN 40 AND 49 ORDER BY id;

-- I37: other triggers.  Those that fire before the guard decide what it sees ...
CREATE FUNCTION other() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.qty = -1 THEN
		RETURN NULL;
	ELSIF NEW.qty = -2 THEN
		NEW.op := 'replaced';
	ELSIF NEW.qty = -3 THEN
		NEW.op := NULL;
	ELSE
		NEW.id := NEW.id;
	END IF;
	RETURN NEW;
END
$$;
CREATE TRIGGER early BEFORE INSERT OR UPDATE ON a FOR EACH ROW EXECUTE FUNCTION other();
SELECT run($$INSERT INTO a VALUES (50, -1, 't1')$$, $$INSERT INTO a VALUES (50, 0, 't1')$$, $$INSERT INTO a VALUES (51, -2, 't2')$$, $$INSERT INTO a VALUES (52, -2, 't2')$$,
	$$INSERT INTO a VALUES (52, 0, 't2')$$, $$INSERT INTO a VALUES (53, -3, 't3')$$);
-- also where the statement does not set the column
SELECT run($$UPDATE a SET qty = -2 WHERE id = 50$$, $$UPDATE a SET qty = -3 WHERE id = 50$$, $$UPDATE a SET qty = -1 WHERE id = 50$$, $$UPDATE a SET qty = 1 WHERE id = 50$$);
-- nor is a key new that only comes along in a row which a trigger has rebuilt
SELECT run($$UPDATE a SET qty = 2 WHERE id = 50$$, $$UPDATE a SET qty = 2, op = 't5' WHERE id = 50$$, $$UPDATE a SET qty = 3 WHERE id = 50$$);
DROP TRIGGER early ON a;
-- ... those that fire after it, what is written; that counts
CREATE TRIGGER "~~late" BEFORE INSERT OR UPDATE ON a FOR EACH ROW EXECUTE FUNCTION other();
SELECT run($$DELETE FROM a WHERE id >= 50$$);
DELETE FROM fence.idempotency_key WHERE scope = 'public.a' AND (key LIKE 't_' OR key = 'replaced');
SELECT run($$INSERT INTO a VALUES (50, -1, 't1')$$, $$INSERT INTO a VALUES (50, 0, 't1')$$, $$INSERT INTO a VALUES (51, -2, 't2')$$, $$INSERT INTO a VALUES (52, -2, 't2')$$,
	$$INSERT INTO a VALUES (52, 0, 't2')$$, $$INSERT INTO a VALUES (53, -3, 't3')$$, $$UPDATE a SET qty = -1, op = 't4' WHERE id = 50$$, $$UPDATE a SET qty = 1, op = 't4' WHERE id = 50$$);
DROP TRIGGER "~~late" ON a;
SELECT * FROM a WHERE id >= 50 ORDER BY id;
SELECT key FROM fence.keys WHERE scope = 'public.a' AND (key LIKE 't_' OR key = 'replaced') ORDER BY 1;

-- I38: statements in triggers, and foreign keys
CREATE TABLE child (id int PRIMARY KEY, a_id int REFERENCES a ON UPDATE CASCADE ON DELETE CASCADE, op text);
SELECT fence.protect('child', 'key-writes', key_column => 'op', on_duplicate => 'skip');
CREATE FUNCTION add_child() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO child VALUES (NEW.id * 10, NEW.id, NEW.op), (NEW.id * 10 + 1, NEW.id, NEW.op);
	RETURN NULL;
END
$$;
CREATE TRIGGER add_child AFTER INSERT ON a FOR EACH ROW EXECUTE FUNCTION add_child();
-- one key in two tables: two scopes (I45)
SELECT run($$INSERT INTO a VALUES (60, 0, 'f1')$$, $$INSERT INTO a VALUES (61, 0, 'f2')$$, $$INSERT INTO a VALUES (62, 0, 'f2')$$);
-- each row's trigger runs a statement of its own, and the second one finds a
-- duplicate; that is not skipped, or the statement would be done by half
SELECT run($$INSERT INTO a VALUES (63, 0, 'f3'), (64, 0, 'f3')$$, $$INSERT INTO a VALUES (63, 0, 'f3')$$);
SELECT * FROM child ORDER BY id;
DROP TRIGGER add_child ON a;
-- cascades do not touch the key, and are not judged by it
SELECT run($$UPDATE a SET id = 69 WHERE id = 60$$, $$DELETE FROM a WHERE id = 61$$);
SELECT * FROM child ORDER BY id;
-- The action of a foreign key that sets the key column: it is refused, never
-- skipped.
CREATE TABLE code (op text PRIMARY KEY);
INSERT INTO code SELECT DISTINCT op FROM child;
ALTER TABLE child ADD FOREIGN KEY (op) REFERENCES code ON UPDATE CASCADE ON DELETE SET NULL;
SELECT run($$UPDATE code SET op = 'f9' WHERE op = 'f3'$$);
SELECT run($$UPDATE code SET op = 'f8' WHERE op = 'f1'$$, $$UPDATE code SET op = 'f1' WHERE op = 'f8'$$, $$DELETE FROM code WHERE op = 'f8'$$);
SELECT id, op FROM child ORDER BY id;
DROP TABLE child, code;

-- I39: UPDATE of no row leaves no claim
SELECT * FROM on_both($$UPDATE % SET qty = 0, op = 'z1' WHERE id = 9999$$, $$UPDATE % SET qty = 0, op = 'z1' WHERE id = 5$$);
-- I42: DELETE has nothing to do with keys
SELECT * FROM on_both($$DELETE FROM % WHERE op = 'z1'$$, $$INSERT INTO % VALUES (5, 0, 'z1')$$);
-- I46: a later statement of the same transaction is another operation
BEGIN;
SELECT fence.check('key-writes', 1);
INSERT INTO s VALUES (70, 0, 'l1');
INSERT INTO s VALUES (71, 0, 'l1');
UPDATE s SET qty = 1, op = 'l1' WHERE id = 70;
INSERT INTO a VALUES (70, 0, 'l1');
SAVEPOINT x;
INSERT INTO a VALUES (71, 0, 'l1');
ROLLBACK TO x;
SELECT fence.once('l1', 'public.a');
COMMIT;
SELECT id, qty FROM s WHERE op = 'l1';
-- both parts of one statement are one
SELECT run($$WITH u AS (UPDATE a SET qty = 5, op = 'l2' WHERE id = 70 RETURNING id) INSERT INTO a SELECT id + 1, 0, 'l2' FROM u$$, $$INSERT INTO a VALUES (72, 0, 'l2')$$);
SELECT * FROM a WHERE op = 'l2' ORDER BY id;

-- I43: through a view, with and without INSTEAD OF
CREATE VIEW va AS SELECT id, qty, op FROM a;
SELECT run($$INSERT INTO va VALUES (80, 0, 'v1')$$, $$INSERT INTO va VALUES (81, 0, 'v1')$$, $$UPDATE va SET qty = 1, op = 'v2' WHERE id = 80$$, $$UPDATE va SET qty = 1, op = 'v2' WHERE id = 80$$);
CREATE FUNCTION instead() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO a VALUES (NEW.id, NEW.qty, NEW.op);
	RETURN NEW;
END
$$;
CREATE TRIGGER instead INSTEAD OF INSERT ON va FOR EACH ROW EXECUTE FUNCTION instead();
SELECT run($$INSERT INTO va VALUES (82, 0, 'v3')$$, $$INSERT INTO va VALUES (83, 0, 'v3')$$);
SELECT * FROM a WHERE id >= 80 ORDER BY id;
DROP VIEW va;
DROP FUNCTION instead();

-- I44: as a replica, nothing is judged and nothing claimed, as with tokens
SET session_replication_role = replica;
INSERT INTO a VALUES (90, 0, 'v3');
INSERT INTO a VALUES (91, 0, 'r1');
RESET session_replication_role;
SELECT run($$INSERT INTO a VALUES (92, 0, 'r1')$$);

-- I34: partitions.  A row that moves takes its key along.
CREATE TABLE p (id int, region text, qty int, op text) PARTITION BY LIST (region);
CREATE TABLE p_a PARTITION OF p FOR VALUES IN ('a');
CREATE TABLE p_b (op text, qty int, gone int, region text, id int);
ALTER TABLE p_b DROP gone;
ALTER TABLE p ATTACH PARTITION p_b FOR VALUES IN ('b');
-- one that was there before keys were, and has none
INSERT INTO p VALUES (9, 'a', 0, NULL), (8, 'a', 0, 'old');
SELECT fence.protect('p', 'key-writes', key_column => 'op');
SELECT run($$INSERT INTO p VALUES (1, 'a', 0, 'p1'), (2, 'b', 0, 'p1')$$, $$INSERT INTO p VALUES (3, 'a', 0, 'p1')$$, $$INSERT INTO p_b (id, region, op) VALUES (3, 'b', 'p1')$$);
SELECT run($$UPDATE p SET region = 'b' WHERE id = 1$$, $$UPDATE p SET region = 'a' WHERE id = 1$$, $$UPDATE p SET region = 'b'$$, $$UPDATE p SET region = 'a'$$);
SELECT tableoid::regclass, id, op FROM p ORDER BY id;
SELECT * FROM keys WHERE scope = 'public.p';
-- with a key of its own, moving and staying
SELECT run($$UPDATE p SET region = CASE id WHEN 1 THEN 'b' ELSE region END, qty = qty + 1, op = 'p2' WHERE id < 3$$, $$UPDATE p SET region = 'a', qty = qty + 1, op = 'p2' WHERE id < 3$$);
SELECT run($$UPDATE p SET region = 'b', op = 'p3' WHERE id >= 8$$, $$UPDATE p SET region = 'a', op = 'p1' WHERE id = 2$$);
SELECT tableoid::regclass, id, qty, op FROM p ORDER BY id;
SELECT fence.protect('p', 'key-writes', key_column => 'op', on_duplicate => 'skip');
SELECT run($$UPDATE p SET region = 'a' WHERE id = 1$$, $$UPDATE p SET region = 'b', op = 'p1' WHERE id = 1$$, $$UPDATE p SET region = 'b', op = 'p4' WHERE id = 1$$);
-- MERGE moves, too; and a moved row next to an inserted one
SELECT run($$MERGE INTO p USING (VALUES (1, 'a'), (4, 'b'), (2, 'a')) v (id, region) ON p.id = v.id WHEN MATCHED THEN UPDATE SET region = v.region WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.region, 0, 'p5')$$,
	$$MERGE INTO p USING (VALUES (1, 'b'), (5, 'b')) v (id, region) ON p.id = v.id WHEN MATCHED THEN UPDATE SET region = v.region WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.region, 0, 'p5')$$);
SELECT tableoid::regclass, id, qty, op FROM p ORDER BY id;
SELECT * FROM keys WHERE scope = 'public.p';
-- upsert
CREATE UNIQUE INDEX ON p (id, region);
SELECT run($$INSERT INTO p VALUES (1, 'b', 0, 'p6') ON CONFLICT (id, region) DO UPDATE SET qty = p.qty + 50$$, $$INSERT INTO p VALUES (1, 'b', 0, 'p6') ON CONFLICT (id, region) DO UPDATE SET qty = p.qty + 50$$,
	$$INSERT INTO p VALUES (1, 'b', 0, 'p7') ON CONFLICT DO NOTHING$$, $$INSERT INTO p VALUES (6, 'b', 0, 'p7') ON CONFLICT DO NOTHING$$);
SELECT id, qty, op FROM p WHERE id IN (1, 6) ORDER BY id;
-- a foreign key that moves rows
CREATE TABLE region (region text PRIMARY KEY);
INSERT INTO region VALUES ('a'), ('b');
ALTER TABLE p ADD FOREIGN KEY (region) REFERENCES region ON UPDATE CASCADE;
CREATE TABLE p_c PARTITION OF p FOR VALUES IN ('c');
SELECT run($$UPDATE region SET region = 'c' WHERE region = 'b'$$);
SELECT tableoid::regclass, count(*) FROM p GROUP BY 1 ORDER BY 1;
SELECT run($$UPDATE p SET region = 'a', op = 'p8' WHERE id = 6$$, $$INSERT INTO p VALUES (7, 'c', 0, 'p8')$$);
DROP TABLE p, region;

-- an error in the statement takes the claims along
SELECT * FROM on_both($$INSERT INTO % VALUES (100, 0, 'e1'), (1, 0, 'e1')$$, $$INSERT INTO % VALUES (100, 0, 'e1')$$);

-- open claims of functions in the scope of the table
BEGIN;
SELECT fence.check('key-writes', 1);
SELECT fresh FROM fence.claim('o1', 'public.s');
INSERT INTO s VALUES (110, 0, 'o1');
ROLLBACK;
BEGIN;
SELECT fence.check('key-writes', 1);
INSERT INTO s VALUES (110, 0, 'o2');
SELECT fresh FROM fence.claim('o2', 'public.s');
COMMIT;
-- one that was not written, too, belongs to the next who asks
BEGIN;
SELECT fence.check('key-writes', 1);
INSERT INTO s VALUES (1, 0, 'o3') ON CONFLICT DO NOTHING;
SELECT fence.once('o3', 'public.s');
SELECT fence.once('o3', 'public.s');
COMMIT;
SELECT claimed_at IS NOT NULL AS kept FROM fence.lookup('o3', 'public.s');

-- what is left: only what was done
SELECT * FROM keys;

DROP VIEW keys;
DROP TABLE a, s;
DROP FUNCTION run(text[]), on_both(text[]), other(), add_child();
