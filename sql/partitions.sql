-- The guard on partitioned tables: every way in, rows that move, partitions
-- with another order of columns, and partitions that come and go.
--
-- Field cases: C09 C10 C13
\set VERBOSITY sqlstate
SET client_min_messages = warning;

--
-- Resource marks
--
CREATE TABLE area (region text NOT NULL, id int, qty int) PARTITION BY LIST (region);
CREATE TABLE area_a PARTITION OF area FOR VALUES IN ('a');
CREATE TABLE area_b PARTITION OF area FOR VALUES IN ('b') PARTITION BY RANGE (id);
CREATE TABLE area_b1 PARTITION OF area_b FOR VALUES FROM (0) TO (10);
-- C13: another order of columns, and dropped ones
CREATE TABLE area_c (gone int, qty int, id int, region text NOT NULL);
ALTER TABLE area_c DROP gone;
ALTER TABLE area ATTACH PARTITION area_c FOR VALUES IN ('c');
SELECT fence.protect('area', 'area:{region}');
SELECT target, resource, marks, enabled FROM fence.protected_tables WHERE target::text LIKE 'area%';

INSERT INTO area VALUES ('a', 1, 1);
INSERT INTO area VALUES ('b', 1, 1);
INSERT INTO area VALUES ('c', 1, 1);
INSERT INTO area_a VALUES ('a', 1, 1);
INSERT INTO area_b VALUES ('b', 1, 1);
INSERT INTO area_b1 VALUES ('b', 1, 1);
INSERT INTO area_c (region, id, qty) VALUES ('c', 1, 1);
COPY area FROM stdin;
c	1	1
\.
TRUNCATE area;
TRUNCATE area_a;
TRUNCATE area_b;
TRUNCATE area_b1;
BEGIN;
SELECT fence.check('area:a', 1), fence.check('area:b', 2), fence.check('area:c', 3);
INSERT INTO area VALUES ('a', 1, 1), ('b', 1, 1), ('c', 1, 1);
INSERT INTO area_c (region, id, qty) VALUES ('c', 2, 1);
COPY area FROM stdin;
a	3	1
c	3	1
\.
COMMIT;
-- each through the root and by its own name
BEGIN;
SELECT fence.check('area:c', 3);
UPDATE area SET qty = 2 WHERE region = 'c';
UPDATE area_c SET qty = 3;
DELETE FROM area WHERE region = 'c' AND id = 2;
DELETE FROM area_c WHERE id = 3;
SAVEPOINT s;
UPDATE area SET qty = 9;
ROLLBACK TO s;
UPDATE area_a SET qty = 9;
ROLLBACK TO s;
DELETE FROM area_b1;
ROLLBACK TO s;
COMMIT;
SELECT * FROM area ORDER BY region COLLATE "C", id;
-- C09: a row that moves changes its resource
BEGIN;
SELECT fence.check('area:a', 1);
SAVEPOINT s;
UPDATE area SET region = 'c' WHERE region = 'a' AND id = 1;
ROLLBACK TO s;
SELECT fence.check('area:c', 3);
UPDATE area SET region = 'c', id = 4 WHERE region = 'a' AND id = 1;
COMMIT;
MERGE INTO area t USING (VALUES ('c', 4)) v (r, id) ON t.region = v.r AND t.id = v.id WHEN MATCHED THEN UPDATE SET region = 'a';
BEGIN;
SELECT fence.check('area:a', 1), fence.check('area:c', 3);
MERGE INTO area t USING (VALUES ('c', 4)) v (r, id) ON t.region = v.r AND t.id = v.id WHEN MATCHED THEN UPDATE SET region = 'a';
COMMIT;
SELECT * FROM area ORDER BY region COLLATE "C", id;

-- a partition that comes later is guarded; calling protect() again guards its TRUNCATE too
CREATE TABLE area_d PARTITION OF area FOR VALUES IN ('d');
INSERT INTO area VALUES ('d', 1, 1);
INSERT INTO area_d VALUES ('d', 1, 1);
SELECT fence.protect('area', 'area:{region}');
TRUNCATE area_d;
CREATE TABLE area_e (id int, region text NOT NULL, qty int);
INSERT INTO area_e VALUES (1, 'e', 1);
ALTER TABLE area ATTACH PARTITION area_e FOR VALUES IN ('e');
UPDATE area_e SET qty = 2;
UPDATE area SET qty = 2 WHERE region = 'e';

-- a partition is guarded through its parent, and only there
SELECT fence.protect('area_a', 'other');
SELECT fence.unprotect('area_a');
UPDATE area_a SET qty = 9;
TRUNCATE area_a;
-- unprotect takes away all of it
SELECT fence.unprotect('area');
SELECT count(*) FROM pg_trigger WHERE tgname LIKE '~fence%' AND tgrelid::regclass::text LIKE 'area%';
UPDATE area SET qty = 10;
TRUNCATE area_d;
SELECT fence.unprotect('area');
DROP TABLE area;

-- a plain name: all partitions are one resource
CREATE TABLE area (region text, id int) PARTITION BY LIST (region);
CREATE TABLE area_a PARTITION OF area FOR VALUES IN ('a');
CREATE TABLE area_other PARTITION OF area DEFAULT;
SELECT fence.protect('area', 'area');
INSERT INTO area VALUES ('a', 1);
INSERT INTO area_a VALUES ('a', 1);
INSERT INTO area_other VALUES ('z', 1);
UPDATE area SET id = 2;
BEGIN;
SELECT fence.check('area', 1);
INSERT INTO area VALUES ('a', 1), ('z', 1);
UPDATE area SET region = 'y' WHERE region = 'a';
UPDATE area_other SET id = 3;
TRUNCATE area_a;
COMMIT;
SELECT * FROM area ORDER BY region COLLATE "C";
DROP TABLE area;

--
-- A token column
--
CREATE TABLE mover (region text, id int, qty int, tok bigint) PARTITION BY LIST (region);
CREATE TABLE mover_a PARTITION OF mover FOR VALUES IN ('a');
CREATE TABLE mover_b (tok bigint, gone int, qty int, id int, region text);
ALTER TABLE mover_b DROP gone;
ALTER TABLE mover ATTACH PARTITION mover_b FOR VALUES IN ('b');

SELECT fence.protect('mover', 'mover:{id}', 'tok');
INSERT INTO mover VALUES ('a', 1, 1, 5), ('b', 2, 1, 5);
INSERT INTO mover VALUES ('b', 3, 1, NULL);
UPDATE mover SET qty = 2;
UPDATE mover SET qty = 2, tok = 4 WHERE id = 2;
UPDATE mover SET qty = 2, tok = 6 WHERE id = 2;
-- C09: there, and not back with an older token
UPDATE mover SET region = 'b' WHERE id = 1;
UPDATE mover SET region = 'b', tok = 4 WHERE id = 1;
UPDATE mover SET region = 'b', tok = 6 WHERE id = 1;
UPDATE mover SET region = 'a', tok = 1 WHERE id = 1;
UPDATE mover SET region = 'a', tok = 5 WHERE id = 1;
SELECT * FROM mover ORDER BY id;
SELECT fence.mark('mover:1'), fence.mark('mover:2');
BEGIN;
SELECT fence.check('mover:1', 7);
UPDATE mover SET region = 'a' WHERE id = 1;
COMMIT;
MERGE INTO mover m USING (VALUES (1)) v (id) ON m.id = v.id WHEN MATCHED THEN UPDATE SET region = 'b', tok = 8;
SELECT * FROM mover ORDER BY id;
-- move and change the resource
BEGIN;
SELECT fence.check('mover:1', 8);
UPDATE mover SET region = 'a', id = 9, tok = 20 WHERE id = 1;
COMMIT;
SELECT * FROM mover ORDER BY id;

-- the same with marks => 'row', where nothing but the row knows the token
SELECT fence.protect('mover', 'mover-row:{id}', 'tok', 'row');
UPDATE mover SET region = 'b' WHERE id = 9;
UPDATE mover SET region = 'b', tok = 19 WHERE id = 9;
UPDATE mover SET region = 'b', tok = 21 WHERE id = 9;
UPDATE mover SET region = 'a', tok = 20 WHERE id = 9;
SELECT * FROM mover ORDER BY id;
UPDATE mover SET region = 'a', tok = 21 WHERE id = 9;
UPDATE mover SET region = CASE region WHEN 'a' THEN 'b' ELSE 'a' END, tok = 30;
SELECT * FROM mover ORDER BY id;
MERGE INTO mover m USING (VALUES (9)) v (id) ON m.id = v.id WHEN MATCHED THEN UPDATE SET region = 'a', tok = 31;
BEGIN;
SELECT fence.check('mover-row:9', 32);
UPDATE mover SET region = 'b' WHERE id = 9;
COMMIT;
SELECT * FROM mover ORDER BY id;
-- a move is no licence to delete
WITH m AS (UPDATE mover SET region = 'a', tok = 33 WHERE id = 9 RETURNING id) DELETE FROM mover USING m WHERE mover.id = 2;
DELETE FROM mover WHERE id = 9;
SELECT * FROM mover ORDER BY id;
SELECT fence.mark('mover-row:9');
DROP TABLE mover;
