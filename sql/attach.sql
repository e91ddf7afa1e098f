-- Partitions and inheritance children that come and go after fence.protect(): what
-- is guarded at once, what fence.audit() reports, and that its remedy repairs it.
--
-- Field cases: C10 C13
\set VERBOSITY sqlstate
SET client_min_messages = warning;

CREATE VIEW audit AS
	SELECT target, severity, problem, remedy FROM fence.audit() WHERE target::text ~ '^"?att'
	ORDER BY target::text COLLATE "C", problem COLLATE "C", remedy COLLATE "C";

-- resource marks
CREATE TABLE att (region text NOT NULL, id int, qty int) PARTITION BY LIST (region);
CREATE TABLE att_a PARTITION OF att FOR VALUES IN ('a');
SELECT fence.protect('att', 'att-{region}');
TABLE audit;
CREATE TABLE att_b PARTITION OF att FOR VALUES IN ('b');
CREATE TABLE att_c (qty int, gone int, id int, region text NOT NULL);
ALTER TABLE att_c DROP gone;
ALTER TABLE att ATTACH PARTITION att_c FOR VALUES IN ('c');
CREATE TABLE att_d PARTITION OF att FOR VALUES IN ('d') PARTITION BY RANGE (id);
CREATE TABLE att_d1 PARTITION OF att_d FOR VALUES FROM (0) TO (10);
-- their rows are guarded at once
INSERT INTO att VALUES ('b', 1, 1);
INSERT INTO att_b VALUES ('b', 1, 1);
INSERT INTO att_c (region, id) VALUES ('c', 1);
INSERT INTO att VALUES ('d', 1, 1);
INSERT INTO att_d1 VALUES ('d', 1, 1);
BEGIN;
SELECT fence.check('att-b', 1), fence.check('att-c', 1), fence.check('att-d', 1);
INSERT INTO att VALUES ('b', 1, 1), ('c', 1, 1), ('d', 1, 1);
COMMIT;
UPDATE att SET region = 'b' WHERE region = 'c';
-- their TRUNCATE is not, and audit() says so
TABLE audit;
SELECT DISTINCT remedy FROM audit \gexec
TABLE audit;
TRUNCATE att_b;
TRUNCATE att_c;
TRUNCATE att_d;
TRUNCATE att_d1;
-- a guarded partition that is taken away is a table without a guard; TRUNCATE still says no
ALTER TABLE att DETACH PARTITION att_c;
INSERT INTO att_c (region, id) VALUES ('c', 2);
TRUNCATE att_c;
SELECT target, resource FROM fence.protected_tables WHERE target::text LIKE 'att%';
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
INSERT INTO att_c (region, id) VALUES ('c', 2);
TRUNCATE att_c;
-- ... or without a guard
SELECT fence.unprotect('att_c');
TABLE audit;
TRUNCATE att_c;
-- ... or protected by itself, on its own
INSERT INTO att_c (region, id) VALUES ('c', 2);
ALTER TABLE att ATTACH PARTITION att_c FOR VALUES IN ('c');
SELECT fence.protect('att', 'att-{region}');
ALTER TABLE att DETACH PARTITION att_c;
SELECT fence.protect('att_c', 'att-{region}');
TABLE audit;
UPDATE att_c SET qty = 2;
TRUNCATE att_c;
SELECT target, resource FROM fence.protected_tables WHERE target::text LIKE 'att%' ORDER BY target::text COLLATE "C";
-- a table with a guard cannot be attached: the names of the triggers clash
ALTER TABLE att ATTACH PARTITION att_c FOR VALUES IN ('c');
UPDATE att_c SET qty = 2;
SELECT fence.unprotect('att_c');
ALTER TABLE att ATTACH PARTITION att_c FOR VALUES IN ('c');
UPDATE att_c SET qty = 2;
SELECT fence.protect('att', 'att-{region}');
TABLE audit;
-- dropped, the partition takes its triggers along
DROP TABLE att_d;
TABLE audit;
DROP TABLE att;

-- a token column
CREATE TABLE att (region text NOT NULL, id int, tok bigint) PARTITION BY LIST (region);
SELECT fence.protect('att', 'att-tok-{id}', 'tok');
CREATE TABLE att_a PARTITION OF att FOR VALUES IN ('a');
CREATE TABLE att_b (tok bigint, id int, region text NOT NULL);
INSERT INTO att_b VALUES (9, 1, 'b');
ALTER TABLE att ATTACH PARTITION att_b FOR VALUES IN ('b');
INSERT INTO att VALUES ('a', 2, 5);
UPDATE att SET tok = 8 WHERE id = 1;
UPDATE att_b SET tok = 8;
UPDATE att SET region = 'a', tok = 8 WHERE id = 1;
-- rows that came along have tokens of which no mark knows
TABLE audit;
SELECT remedy FROM audit WHERE target = 'att'::regclass \gexec
SELECT DISTINCT remedy FROM audit \gexec
TABLE audit;
SELECT fence.mark('att-tok-1');
UPDATE att SET region = 'a', tok = 10 WHERE id = 1;
ALTER TABLE att DETACH PARTITION att_a;
UPDATE att_a SET tok = 1;
TABLE audit;
DROP TABLE att, att_a;

-- a partition that moves from one guarded table to another keeps the TRUNCATE trigger of the
-- first, whose resource is not that of the second
CREATE TABLE att (region text NOT NULL, id int) PARTITION BY LIST (region);
CREATE TABLE att_a PARTITION OF att FOR VALUES IN ('a');
CREATE TABLE att_other (region text NOT NULL, id int) PARTITION BY LIST (region);
SELECT fence.protect('att', 'att-from'), fence.protect('att_other', 'att-to');
TABLE audit;
ALTER TABLE att DETACH PARTITION att_a;
ALTER TABLE att_other ATTACH PARTITION att_a FOR VALUES IN ('a');
TABLE audit;
TRUNCATE att_a;
BEGIN;
SELECT fence.check('att-from', 1);
TRUNCATE att_a;
ROLLBACK;
SELECT remedy FROM audit \gexec
TABLE audit;
BEGIN;
SELECT fence.check('att-from', 1);
TRUNCATE att_a;
ROLLBACK;
BEGIN;
SELECT fence.check('att-to', 1);
TRUNCATE att_a;
COMMIT;
-- ... to a table without a guard
ALTER TABLE att_other DETACH PARTITION att_a;
SELECT fence.unprotect('att');
ALTER TABLE att ATTACH PARTITION att_a FOR VALUES IN ('a');
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
INSERT INTO att VALUES ('a', 1);
TRUNCATE att_a;
SELECT fence.unprotect('att_a');
-- a guarded table that becomes a partition of another, with triggers of other names
SELECT fence.protect('att', 'att-to-{id}');
CREATE TABLE att_b (region text NOT NULL, id int);
SELECT fence.protect('att_b', 'att-from');
ALTER TABLE att ATTACH PARTITION att_b FOR VALUES IN ('b');
TABLE audit;
SELECT DISTINCT remedy FROM audit \gexec
TABLE audit;
INSERT INTO att_b SELECT 'b', 1 WHERE fence.check('att-to-1', 1);
DROP TABLE att, att_other;

-- a foreign partition: what its own server writes passes by
CREATE FOREIGN DATA WRAPPER att_wrapper;
CREATE SERVER att_server FOREIGN DATA WRAPPER att_wrapper;
CREATE TABLE att (region text NOT NULL, id int) PARTITION BY LIST (region);
SELECT fence.protect('att', 'att-{id}');
CREATE FOREIGN TABLE att_f PARTITION OF att FOR VALUES IN ('f') SERVER att_server;
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
DROP FOREIGN DATA WRAPPER att_wrapper CASCADE;
DROP TABLE att;

-- a plain table that becomes a partition, or a child, after it was protected: the
-- statement-level guard does not see what comes through the parent
CREATE TABLE att_parent (region text, id int) PARTITION BY LIST (region);
CREATE TABLE att (region text, id int);
SELECT fence.protect('att', 'att-plain');
INSERT INTO att VALUES ('a', 1);
ALTER TABLE att_parent ATTACH PARTITION att FOR VALUES IN ('a');
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
INSERT INTO att VALUES ('a', 1);
INSERT INTO att_parent VALUES ('a', 1);
INSERT INTO att_parent SELECT 'a', 1 WHERE fence.check('att-plain', 1);
TRUNCATE att;
TRUNCATE att_parent;
DROP TABLE att_parent;
CREATE TABLE att_parent (id int);
CREATE TABLE att (id int);
SELECT fence.protect('att', 'att-plain');
ALTER TABLE att INHERIT att_parent;
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
INSERT INTO att SELECT 1 WHERE fence.check('att-plain', 1);
UPDATE att_parent SET id = 2;
UPDATE att_parent SET id = 2 WHERE fence.check('att-plain', 1);
DROP TABLE att_parent CASCADE;

-- C10: a child of a protected table
CREATE TABLE att (id int, tok bigint);
SELECT fence.protect('att', 'att-inh', 'tok');
CREATE TABLE "att child" () INHERITS (att);
TABLE audit;
SELECT remedy FROM audit \gexec
TABLE audit;
INSERT INTO "att child" VALUES (1, 1);
UPDATE att SET tok = 0;
UPDATE att SET tok = 2;
SELECT * FROM "att child";
-- ... and its children, in turn
CREATE TABLE att_child () INHERITS (att);
CREATE TABLE att_grandchild () INHERITS (att_child);
TABLE audit;
SELECT remedy FROM audit ORDER BY target::text COLLATE "C" \gexec
TABLE audit;
INSERT INTO att_grandchild VALUES (2, 1);
DROP TABLE att, att_child CASCADE;
DROP VIEW audit;
