-- The guard without a token column: rows are judged by the mark of their
-- resource, with the token presented in the transaction.
--
-- Field cases: C01 C11 C18, and TRUNCATE of C06
\set VERBOSITY sqlstate

--
-- A plain name: the same resource for every row, judged once per statement
--
CREATE TABLE plain (sku text PRIMARY KEY, qty int);
INSERT INTO plain VALUES ('A', 1), ('B', 2);
SELECT fence.protect('plain', 'plain');
SELECT tgtype & 1 AS row, tgtype & 2 AS before, tgtype & 60 AS events, tgname LIKE '~fence\_%' AS ours
FROM pg_trigger WHERE tgrelid = 'plain'::regclass ORDER BY tgtype;

-- without a token: nothing gets in
INSERT INTO plain VALUES ('C', 3);
UPDATE plain SET qty = 0;
DELETE FROM plain;
TRUNCATE plain;
COPY plain FROM stdin;
C	3
\.
INSERT INTO plain VALUES ('A', 3) ON CONFLICT DO NOTHING;
INSERT INTO plain VALUES ('A', 3) ON CONFLICT (sku) DO UPDATE SET qty = excluded.qty;
MERGE INTO plain p USING (VALUES ('A')) s (sku) ON s.sku = p.sku WHEN MATCHED THEN UPDATE SET qty = 0;
MERGE INTO plain p USING (VALUES ('A')) s (sku) ON s.sku = p.sku WHEN MATCHED THEN DELETE;
MERGE INTO plain p USING (VALUES ('C')) s (sku) ON s.sku = p.sku WHEN NOT MATCHED THEN INSERT VALUES (s.sku, 3);
WITH w AS (DELETE FROM plain RETURNING *) SELECT count(*) FROM w;
TABLE plain ORDER BY sku;
-- reading and locking are free
SELECT count(*) FROM plain;
SELECT sku FROM plain ORDER BY sku COLLATE "C" FOR UPDATE;

-- the token of another resource is none
BEGIN;
SELECT fence.check('plain ', 33), fence.check('Plain', 33);
UPDATE plain SET qty = 0;
ROLLBACK;

-- with it: everything
BEGIN;
SELECT fence.check('plain', 33);
INSERT INTO plain VALUES ('C', 3);
UPDATE plain SET qty = qty + 10;
COPY plain FROM stdin;
D	4
E	5
\.
INSERT INTO plain VALUES ('A', 3) ON CONFLICT DO NOTHING;
INSERT INTO plain VALUES ('A', 30), ('F', 6) ON CONFLICT (sku) DO UPDATE SET qty = excluded.qty;
MERGE INTO plain p USING (VALUES ('A'), ('B'), ('G')) s (sku) ON s.sku = p.sku
	WHEN MATCHED AND p.sku = 'A' THEN UPDATE SET qty = 31
	WHEN MATCHED THEN DELETE
	WHEN NOT MATCHED THEN INSERT VALUES (s.sku, 7);
WITH w AS (DELETE FROM plain WHERE sku = 'G' RETURNING *) SELECT count(*) FROM w;
DELETE FROM plain WHERE sku = 'F' RETURNING sku, qty;
COMMIT;
TABLE plain ORDER BY sku;

-- gone with the transaction
UPDATE plain SET qty = 0;
-- stale
BEGIN;
SELECT fence.check('plain', 32);
UPDATE plain SET qty = 0;
COMMIT;
UPDATE plain SET qty = 0 WHERE fence.check('plain', 32);
TABLE plain ORDER BY sku;
-- in the statement itself: in WHERE, in a CTE, in RETURNING
UPDATE plain SET qty = 41 WHERE sku = 'A' AND fence.check('plain', 33);
WITH token AS (SELECT fence.check('plain', 33) AS ok) INSERT INTO plain SELECT 'H', 8 FROM token WHERE ok;
DELETE FROM plain WHERE sku = 'H' RETURNING fence.check('plain', 33);
-- after the write is too late
BEGIN;
UPDATE plain SET qty = 0;
SELECT fence.check('plain', 33);
COMMIT;
TABLE plain ORDER BY sku;
-- statements are judged here, also those that change no row
UPDATE plain SET qty = 0 WHERE false;
-- TRUNCATE has a single resource
BEGIN;
SELECT fence.check('plain', 33);
TRUNCATE plain;
SELECT count(*) FROM plain;
ROLLBACK;
BEGIN;
SELECT fence.check('plain-other', 33);
TRUNCATE plain;
ROLLBACK;
SELECT count(*) FROM plain;

-- C01: the mark moves when a newer token is presented, written or not
INSERT INTO plain SELECT 'A', 0 WHERE fence.check('plain', 34) ON CONFLICT DO NOTHING;
SELECT fence.mark('plain');
-- C18: an equal token leaves the mark alone, whatever is written under it
SELECT xmin AS x, ctid AS c FROM fence.resource WHERE name = 'plain' \gset
BEGIN;
SELECT fence.check('plain', 34);
INSERT INTO plain SELECT 'new-' || i, i FROM generate_series(1, 1000) i;
UPDATE plain SET qty = qty + 1;
DELETE FROM plain WHERE sku LIKE 'new-%';
COMMIT;
SELECT xmin = :'x' AND ctid = :'c' AS untouched FROM fence.resource WHERE name = 'plain';
DROP TABLE plain;

--
-- Columns in the template: each row has its own resource
--
CREATE TABLE stock (warehouse int NOT NULL, sku text, qty int, PRIMARY KEY (warehouse, sku));
INSERT INTO stock SELECT w, sku, 0 FROM generate_series(1, 3) w, unnest('{A,B}'::text[]) sku;
SELECT fence.protect('stock', 'stock:{warehouse}');
SELECT tgtype & 1 AS row, tgtype & 2 AS before, tgtype & 60 AS events, tgname LIKE '~fence\_%' AS ours
FROM pg_trigger WHERE tgrelid = 'stock'::regclass ORDER BY tgtype;

INSERT INTO stock VALUES (1, 'C', 1);
UPDATE stock SET qty = 1 WHERE warehouse = 1;
DELETE FROM stock WHERE warehouse = 1;
TRUNCATE stock;
COPY stock FROM stdin;
1	C	1
\.
-- a statement that changes no row belongs to no resource
UPDATE stock SET qty = 1 WHERE false;
DELETE FROM stock WHERE warehouse = 99;
INSERT INTO stock VALUES (1, 'A', 1) ON CONFLICT DO NOTHING;
MERGE INTO stock s USING (VALUES (1, 'A')) v (w, sku) ON s.warehouse = v.w AND s.sku = v.sku WHEN MATCHED THEN DO NOTHING;

BEGIN;
SELECT fence.check('stock:1', 11);
UPDATE stock SET qty = 1 WHERE warehouse = 1;
INSERT INTO stock VALUES (1, 'C', 3);
DELETE FROM stock WHERE warehouse = 1 AND sku = 'B' RETURNING sku;
COPY stock FROM stdin;
1	D	4
\.
INSERT INTO stock VALUES (1, 'A', 5) ON CONFLICT (warehouse, sku) DO UPDATE SET qty = excluded.qty;
MERGE INTO stock s USING (VALUES (1, 'A'), (1, 'E'), (1, 'D')) v (w, sku) ON s.warehouse = v.w AND s.sku = v.sku
	WHEN MATCHED AND v.sku = 'D' THEN DELETE
	WHEN MATCHED THEN UPDATE SET qty = 6
	WHEN NOT MATCHED THEN INSERT VALUES (v.w, v.sku, 7);
COMMIT;
SELECT * FROM stock WHERE warehouse = 1 ORDER BY sku COLLATE "C";

-- one warehouse among several without a token: the whole statement fails
BEGIN;
SELECT fence.check('stock:1', 11), fence.check('stock:2', 22);
SAVEPOINT s;
UPDATE stock SET qty = 99;
ROLLBACK TO s;
DELETE FROM stock;
ROLLBACK TO s;
INSERT INTO stock VALUES (1, 'X', 1), (3, 'X', 1);
ROLLBACK TO s;
COPY stock FROM stdin;
1	X	1
2	X	1
3	X	1
\.
ROLLBACK TO s;
INSERT INTO stock VALUES (3, 'A', 5) ON CONFLICT (warehouse, sku) DO UPDATE SET qty = excluded.qty;
ROLLBACK TO s;
MERGE INTO stock s USING (VALUES (1), (3)) v (w) ON s.warehouse = v.w WHEN MATCHED THEN UPDATE SET qty = 6;
ROLLBACK TO s;
TRUNCATE stock;
ROLLBACK TO s;
SELECT fence.check('stock:3', 33);
UPDATE stock SET qty = 99;
COMMIT;
SELECT warehouse, count(*), min(qty), max(qty) FROM stock GROUP BY warehouse ORDER BY warehouse;

-- no token covers all of them
BEGIN;
SELECT fence.check('stock:1', 11), fence.check('stock:{warehouse}', 1);
TRUNCATE stock;
ROLLBACK;

-- a row that changes its resource needs both
BEGIN;
SELECT fence.check('stock:1', 11);
SAVEPOINT s;
UPDATE stock SET warehouse = 2, sku = 'Z' WHERE warehouse = 1 AND sku = 'A';
ROLLBACK TO s;
UPDATE stock SET warehouse = 1, sku = 'Z' WHERE warehouse = 2 AND sku = 'A';
ROLLBACK TO s;
SELECT fence.check('stock:2', 22);
UPDATE stock SET warehouse = 2, sku = 'Z' WHERE warehouse = 1 AND sku = 'A';
UPDATE stock SET warehouse = 1, sku = 'Y' WHERE warehouse = 2 AND sku = 'A';
COMMIT;
SELECT * FROM stock ORDER BY warehouse, sku COLLATE "C";

-- stale for one, fresh for the other
BEGIN;
SELECT fence.check('stock:2', 22);
UPDATE stock SET qty = 100 WHERE warehouse = 2;
SELECT fence.check('stock:1', 10);
COMMIT;
BEGIN;
SELECT fence.check('stock:2', 22), fence.check('stock:1', 11);
UPDATE stock SET qty = 100 WHERE warehouse < 3;
SELECT fence.raise_mark('stock:1', 12);
COMMIT;
SELECT count(*) FROM stock WHERE qty = 100;

-- a token for each row, in the statement that writes them
UPDATE stock SET qty = 50 WHERE fence.check('stock:' || warehouse, warehouse * 11 + (warehouse = 1)::int);
SELECT warehouse, count(*), min(qty), max(qty) FROM stock GROUP BY warehouse ORDER BY warehouse;
-- C11: the same row twice
UPDATE stock SET qty = v.q FROM (VALUES (60), (61)) v (q) WHERE warehouse = 3 AND sku = 'A' AND fence.check('stock:3', 33);
SELECT qty IN (60, 61) AS one_of_them FROM stock WHERE warehouse = 3 AND sku = 'A';
BEGIN;
SELECT fence.check('stock:3', 40);
INSERT INTO stock VALUES (3, 'A', 1), (3, 'A', 2) ON CONFLICT (warehouse, sku) DO UPDATE SET qty = excluded.qty;
ROLLBACK;
BEGIN;
SELECT fence.check('stock:3', 40);
MERGE INTO stock s USING (VALUES (1), (2)) v (q) ON s.warehouse = 3 AND s.sku = 'A' WHEN MATCHED THEN UPDATE SET qty = v.q;
ROLLBACK;
SELECT fence.mark('stock:3');

-- C18: one new token, one row of fence.resource, one write
BEGIN;
SELECT n_tup_ins + n_tup_upd AS n FROM pg_stat_xact_all_tables WHERE relid = 'fence.resource'::regclass \gset
SELECT fence.check('stock:3', 34);
INSERT INTO stock SELECT 3, 'new-' || i, i FROM generate_series(1, 1000) i;
SELECT n_tup_ins + n_tup_upd - :n AS writes FROM pg_stat_xact_all_tables WHERE relid = 'fence.resource'::regclass;
COMMIT;
SELECT fence.mark('stock:3');

-- NULL names no resource
ALTER TABLE stock DROP CONSTRAINT stock_pkey, ALTER warehouse DROP NOT NULL;
BEGIN;
SELECT fence.check('stock:', 1), fence.check('stock:2', 22);
SAVEPOINT s;
INSERT INTO stock VALUES (NULL, 'A', 1);
ROLLBACK TO s;
UPDATE stock SET warehouse = NULL WHERE warehouse = 2;
ROLLBACK;
ALTER TABLE stock DISABLE TRIGGER USER;
INSERT INTO stock VALUES (NULL, 'A', 1);
ALTER TABLE stock ENABLE TRIGGER USER;
BEGIN;
SELECT fence.check('stock:', 1), fence.check('stock:2', 22);
SAVEPOINT s;
DELETE FROM stock WHERE warehouse IS NULL;
ROLLBACK TO s;
UPDATE stock SET warehouse = 2 WHERE warehouse IS NULL;
ROLLBACK;
DROP TABLE stock;

--
-- With a lease: the token must belong to a live one, at the write and at commit
--
CREATE TABLE leased (id int PRIMARY KEY, qty int);
SELECT fence.protect('leased', 'leased', lease => 'postgres');
SELECT acquired, token FROM fence.acquire('leased', 'a', '1 hour');
INSERT INTO leased VALUES (1, 1);
BEGIN;
SELECT fence.check('leased', 1);
INSERT INTO leased VALUES (1, 1);
COMMIT;
BEGIN;
SELECT fence.check('leased', 1);
UPDATE leased SET qty = 2;
UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = 'leased';
COMMIT;
BEGIN;
SELECT fence.check('leased', 1);
UPDATE leased SET qty = 3;
SELECT fence.release('leased', 1);
COMMIT;
TABLE leased;
BEGIN;
SELECT fence.check('leased', 1);
UPDATE leased SET qty = 4;
COMMIT;
-- the policy counts where the write happens, not where the token is presented
SELECT fence.check('leased', 1);
CREATE TABLE leased_rows (id int PRIMARY KEY, qty int);
SELECT fence.protect('leased_rows', 'leased-{id}', lease => 'postgres');
BEGIN;
SELECT fence.check('leased-1', 7);
INSERT INTO leased_rows VALUES (1, 1);
COMMIT;
SELECT fence.mark('leased-1');
DROP TABLE leased, leased_rows;
