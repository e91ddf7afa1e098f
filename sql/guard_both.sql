-- The guard with a token column and marks => 'both', the default there: a row is
-- judged by the token that it holds and by the mark of its resource.
--
-- Field cases: A01 A07 B05 C01 C02 C03 C11 C18
\set VERBOSITY sqlstate

CREATE TABLE item (id int PRIMARY KEY, shelf text NOT NULL, qty int, tok bigint);
SELECT fence.protect('item', 'item:{shelf}', 'tok');
SELECT tgtype & 1 AS row, tgtype & 2 AS before, tgtype & 60 AS events, tgname LIKE '~fence\_%' AS ours
FROM pg_trigger WHERE tgrelid = 'item'::regclass ORDER BY tgtype;
SELECT resource, token_column, marks, lease, enabled FROM fence.protected_tables WHERE target = 'item'::regclass;

-- a token that is set is presented
INSERT INTO item VALUES (1, 'x', 1, 5);
SELECT fence.mark('item:x');
INSERT INTO item VALUES (2, 'x', 1, 4);
INSERT INTO item VALUES (2, 'x', 1, 5);
INSERT INTO item VALUES (3, 'x', 1, 6);
SELECT fence.mark('item:x');
-- the row holds 5, the resource has seen 6
UPDATE item SET qty = 2, tok = 5 WHERE id = 1;
UPDATE item SET qty = 2, tok = tok WHERE id = 1;
UPDATE item SET qty = 2, tok = 6 WHERE id = 1;
UPDATE item SET qty = 2, tok = 7 WHERE id = 1;
SELECT fence.mark('item:x');
TABLE item ORDER BY id;
-- nothing set, nothing presented
INSERT INTO item (id, shelf) VALUES (9, 'x');
INSERT INTO item VALUES (9, 'x', 1, NULL);
INSERT INTO item VALUES (9, 'x', 1, 0);
UPDATE item SET qty = 3;
UPDATE item SET qty = 3, tok = NULL;
UPDATE item SET qty = 3, tok = 0;
DELETE FROM item;
-- presented, not set: stamped
BEGIN;
SELECT fence.check('item:x', 8);
INSERT INTO item (id, shelf, qty) VALUES (4, 'x', 1);
UPDATE item SET qty = 4 WHERE id = 1;
UPDATE item SET qty = 4, tok = NULL WHERE id = 2;
DELETE FROM item WHERE id = 3;
COMMIT;
TABLE item ORDER BY id;
-- set within a transaction, used by the statements that follow
BEGIN;
UPDATE item SET tok = 9 WHERE id = 1;
UPDATE item SET qty = 5 WHERE id = 2;
DELETE FROM item WHERE id = 4;
COMMIT;
TABLE item ORDER BY id;
-- a token that is set and one that is presented: one transaction, one token
BEGIN;
SELECT fence.check('item:x', 9);
UPDATE item SET tok = 8 WHERE id = 1;
ROLLBACK;
BEGIN;
SELECT fence.check('item:x', 9);
UPDATE item SET tok = 10 WHERE id = 1;
SELECT fence.mark('item:x');
UPDATE item SET tok = 9 WHERE id = 1;
ROLLBACK;
SELECT fence.mark('item:x');

-- stale at commit
BEGIN;
UPDATE item SET qty = 99, tok = 9;
SELECT fence.raise_mark('item:x', 20);
COMMIT;
TABLE item ORDER BY id;

-- C01: what is not written has been presented all the same
INSERT INTO item VALUES (1, 'x', 0, 12) ON CONFLICT DO NOTHING;
SELECT fence.mark('item:x');
SELECT * FROM item WHERE id = 1;
UPDATE item SET qty = 0, tok = 11 WHERE id = 1;
UPDATE item SET qty = 6, tok = 12 WHERE id = 1;
-- C02: upsert, both arms
INSERT INTO item VALUES (1, 'x', 7, 11) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
INSERT INTO item VALUES (1, 'x', 7, 13), (5, 'x', 7, 13) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
TABLE item ORDER BY id;
-- C03: the proposed row presents its token, and the update is stamped with it
INSERT INTO item VALUES (1, 'x', 8, 3) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty;
INSERT INTO item VALUES (1, 'x', 8, 14) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty;
SELECT * FROM item WHERE id = 1;
-- C11
INSERT INTO item VALUES (1, 'x', 9, 20), (1, 'x', 9, 21) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
MERGE INTO item i USING (VALUES (1, 20), (1, 21)) v (id, t) ON i.id = v.id WHEN MATCHED THEN UPDATE SET tok = v.t;
SELECT fence.mark('item:x');
UPDATE item SET tok = v.t FROM (VALUES (15), (15)) v (t) WHERE id = 1;
SELECT * FROM item WHERE id = 1;
-- COPY, MERGE
COPY item FROM stdin;
6	x	1	14
\.
COPY item FROM stdin;
6	x	1	15
7	x	1	15
\.
COPY item (id, shelf, qty) FROM stdin;
8	x	1
\.
MERGE INTO item i USING (VALUES (6)) v (id) ON i.id = v.id WHEN MATCHED THEN UPDATE SET qty = 2, tok = 14;
MERGE INTO item i USING (VALUES (6)) v (id) ON i.id = v.id WHEN MATCHED THEN UPDATE SET qty = 2, tok = 16;
MERGE INTO item i USING (VALUES (7)) v (id) ON i.id = v.id WHEN MATCHED THEN DELETE;
MERGE INTO item i USING (VALUES (6), (7)) v (id) ON i.id = v.id
	WHEN MATCHED AND i.id = 6 THEN UPDATE SET tok = 17
	WHEN MATCHED THEN UPDATE SET qty = 3;
TABLE item ORDER BY id;
-- an unchanged token in a MERGE is not a presented one; a changed one is
MERGE INTO item i USING (VALUES (6)) v (id) ON i.id = v.id WHEN MATCHED THEN UPDATE SET qty = 4, tok = i.tok;
TABLE item ORDER BY id;

-- B05: deleted is deleted, old holders cannot bring a row back
BEGIN;
SELECT fence.check('item:x', 18);
DELETE FROM item WHERE id = 6;
COMMIT;
INSERT INTO item VALUES (6, 'x', 1, 17);
-- A01, A07: after an acquisition an old holder is late, whether or not the new one has written
SELECT acquired, token FROM fence.acquire('item:x', 'w0', '1 hour');
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'item:x';
UPDATE item SET qty = 10, tok = 19 WHERE id = 1;
SELECT acquired, token FROM fence.acquire('item:x', 'w0', '1 hour');
UPDATE item SET qty = 11, tok = 19 WHERE id = 1;
UPDATE fence.resource SET expires_at = clock_timestamp() + '1 hour' WHERE name = 'item:x';
UPDATE item SET qty = 11, tok = 19 WHERE id = 1;
UPDATE item SET qty = 11, tok = 21 WHERE id = 1;
UPDATE item SET qty = 11, tok = 20 WHERE id = 1;
TABLE item ORDER BY id;

-- two resources: both tokens, and the new one is stamped
BEGIN;
UPDATE item SET shelf = 'y', tok = 30 WHERE id = 1;
ROLLBACK;
BEGIN;
SELECT fence.check('item:x', 20);
SAVEPOINT s;
UPDATE item SET shelf = 'y' WHERE id = 1;
ROLLBACK TO s;
UPDATE item SET shelf = 'y', tok = 19 WHERE id = 1;
ROLLBACK TO s;
UPDATE item SET shelf = 'y', tok = 30 WHERE id = 1;
COMMIT;
SELECT * FROM item WHERE id = 1;
SELECT fence.mark('item:x'), fence.mark('item:y');
-- one statement, several resources
UPDATE item SET tok = CASE shelf WHEN 'x' THEN 20 ELSE 31 END, qty = 12;
SELECT fence.mark('item:x'), fence.mark('item:y');
UPDATE item SET tok = 31, qty = 13;
SELECT fence.mark('item:x'), fence.mark('item:y');
TABLE item ORDER BY id;

-- C18: one token for a thousand rows is one write to fence.resource, an equal one is none
BEGIN;
SELECT n_tup_ins + n_tup_upd AS n FROM pg_stat_xact_all_tables WHERE relid = 'fence.resource'::regclass \gset
INSERT INTO item SELECT i, 'z', i, 1 FROM generate_series(1001, 2000) i;
UPDATE item SET tok = 2 WHERE shelf = 'z';
UPDATE item SET tok = 2 WHERE shelf = 'z';
UPDATE item SET qty = 2 WHERE shelf = 'z';
SELECT n_tup_ins + n_tup_upd - :n AS writes FROM pg_stat_xact_all_tables WHERE relid = 'fence.resource'::regclass;
COMMIT;
SELECT xmin AS x, ctid AS c FROM fence.resource WHERE name = 'item:z' \gset
UPDATE item SET tok = 2, qty = 3 WHERE shelf = 'z';
SELECT xmin = :'x' AND ctid = :'c' AS untouched FROM fence.resource WHERE name = 'item:z';
TRUNCATE item;
DROP TABLE item;

-- a plain name, all rows of one resource; TRUNCATE has a token then
CREATE TABLE item (id int PRIMARY KEY, tok bigint);
SELECT fence.protect('item', 'item', 'tok');
INSERT INTO item VALUES (1, 1), (2, 1);
INSERT INTO item VALUES (3, 2), (4, 1);
INSERT INTO item VALUES (3, 1), (4, 2);
TRUNCATE item;
BEGIN;
SELECT fence.check('item', 2);
UPDATE item SET id = id + 10;
TABLE item ORDER BY id;
TRUNCATE item;
COMMIT;
SELECT count(*) FROM item;
DROP TABLE item;

-- with a lease
CREATE TABLE leased (id int PRIMARY KEY, tok bigint);
SELECT fence.protect('leased', 'both-leased', 'tok', lease => 'postgres');
INSERT INTO leased VALUES (1, 1);
SELECT acquired, token FROM fence.acquire('both-leased', 'a', '1 hour');
INSERT INTO leased VALUES (1, 1);
INSERT INTO leased VALUES (2, 2);
BEGIN;
UPDATE leased SET tok = 1;
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'both-leased';
COMMIT;
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'both-leased';
UPDATE leased SET tok = 1;
TABLE leased;
DROP TABLE leased;
