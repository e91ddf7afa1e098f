-- pg_fence.bypass: maintenance without guards. For superusers, and for roles
-- that were granted it; each statement that passes leaves a line in the log.
-- And the reserved prefix: what is no setting of ours has no effect.
--
-- Field cases: C08 C24 G10
\set VERBOSITY sqlstate
SET default_transaction_isolation = 'read committed';
SET client_min_messages = warning;

CREATE ROLE regress_fence_admin;
CREATE ROLE regress_fence_writer;
SELECT fence.grant_writer('regress_fence_admin'), fence.grant_writer('regress_fence_writer');
CREATE TABLE plain (id int PRIMARY KEY, qty int);
CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
CREATE TABLE area (region text NOT NULL, id int) PARTITION BY LIST (region);
CREATE TABLE area_a PARTITION OF area FOR VALUES IN ('a');
CREATE TABLE area_b PARTITION OF area FOR VALUES IN ('b');
GRANT ALL ON plain, item, area TO regress_fence_admin, regress_fence_writer;
SELECT fence.protect('plain', 'bypass'), fence.protect('item', 'bypass-{id}', 'tok'), fence.protect('area', 'bypass-{region}');
SHOW pg_fence.bypass;
SELECT context, vartype, boot_val, short_desc <> '' AS described FROM pg_settings WHERE name = 'pg_fence.bypass';

-- every way in, with nothing presented
SET pg_fence.bypass = on;
INSERT INTO plain VALUES (1, 1);
UPDATE plain SET qty = 2;
COPY plain FROM stdin;
2	2
\.
DELETE FROM plain WHERE id = 2;
INSERT INTO item VALUES (1, 1, 9), (2, 1, NULL), (3, 1, 0);
UPDATE item SET qty = qty;
UPDATE item SET qty = 2, tok = 8 WHERE id = 1;
MERGE INTO item i USING (VALUES (3), (4)) v (id) ON i.id = v.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (v.id, 1);
INSERT INTO area VALUES ('a', 1), ('b', 2);
UPDATE area SET region = 'b' WHERE id = 1;
TRUNCATE area_a;
TABLE plain;
-- nothing is stamped, no mark moves
SELECT * FROM item ORDER BY id;
SELECT count(*) FROM fence.resource WHERE name LIKE 'bypass%';
TRUNCATE area;
-- what was presented is judged at commit all the same, and check() as ever
BEGIN;
SELECT fence.check('bypass', 5);
UPDATE plain SET qty = 3;
SELECT fence.raise_mark('bypass', 6);
COMMIT;
SELECT fence.check('bypass', 5);
TABLE plain;
-- one line for each statement, whatever the number of rows, triggers and partitions
\set VERBOSITY terse
SET ROLE regress_fence_admin;
SET client_min_messages = log;
UPDATE plain SET qty = 4;
UPDATE plain SET qty = 4 WHERE false;
UPDATE item SET qty = 4;
UPDATE item SET qty = 4 WHERE false;
INSERT INTO area VALUES ('a', 1), ('b', 2), ('a', 3);
TRUNCATE plain;
DO $$
BEGIN
	FOR i IN 1..2 LOOP
		INSERT INTO plain VALUES (i, i);
	END LOOP;
END
$$;
SET client_min_messages = warning;
RESET ROLE;
\set VERBOSITY sqlstate
-- off again: at once
RESET pg_fence.bypass;
UPDATE plain SET qty = 5;
BEGIN;
SET LOCAL pg_fence.bypass = on;
UPDATE plain SET qty = 6;
COMMIT;
UPDATE plain SET qty = 7;
TABLE plain ORDER BY id;
-- C08: a row mark that was lowered meanwhile is gone; that of the resource is not
INSERT INTO item VALUES (10, 1, 9);
SET pg_fence.bypass = on;
UPDATE item SET tok = 1 WHERE id = 10;
RESET pg_fence.bypass;
UPDATE item SET tok = 5 WHERE id = 10;
UPDATE item SET tok = 9 WHERE id = 10;
SELECT tok FROM item WHERE id = 10;

-- not for everybody
SET ROLE regress_fence_writer;
SET pg_fence.bypass = on;
SET LOCAL pg_fence.bypass = on;
SELECT set_config('pg_fence.bypass', 'on', false);
ALTER ROLE regress_fence_writer SET pg_fence.bypass = on;
CREATE FUNCTION pg_temp.sneak() RETURNS void LANGUAGE sql SET pg_fence.bypass = on AS 'UPDATE plain SET qty = 8';
SET pg_fence.bypass = off;
UPDATE plain SET qty = 8;
RESET ROLE;
-- unless granted
GRANT SET ON PARAMETER pg_fence.bypass TO regress_fence_admin;
SET ROLE regress_fence_admin;
SET pg_fence.bypass = on;
UPDATE plain SET qty = 9;
RESET pg_fence.bypass;
UPDATE plain SET qty = 10;
RESET ROLE;
TABLE plain ORDER BY id;
-- ... or in a function of somebody who may
CREATE FUNCTION repair() RETURNS void LANGUAGE sql SECURITY DEFINER SET pg_fence.bypass = on SET search_path = public, pg_temp AS
	'UPDATE plain SET qty = 11';
SET ROLE regress_fence_writer;
SELECT repair();
UPDATE plain SET qty = 12;
RESET ROLE;
TABLE plain ORDER BY id;
DROP FUNCTION repair();

-- in a session that has not loaded the library yet (bypass_1.out is the output
-- of a server that preloads it, which refuses at once)
\c -
SET client_min_messages = warning;
SET ROLE regress_fence_admin;
SET pg_fence.bypass = on;
UPDATE plain SET qty = 13;
SHOW pg_fence.bypass;
\c -
SET client_min_messages = warning;
SET SESSION AUTHORIZATION regress_fence_writer;
SET pg_fence.bypass = on;
UPDATE plain SET qty = 14;
SHOW pg_fence.bypass;
-- not after it either, nor by becoming somebody else
UPDATE plain SET qty = 14;
SET pg_fence.bypass = on;
RESET SESSION AUTHORIZATION;
REVOKE SET ON PARAMETER pg_fence.bypass FROM regress_fence_admin;
SET ROLE regress_fence_admin;
SET pg_fence.bypass = on;
RESET ROLE;

-- G10: names that are not ours, and values that are none
\c -
SET client_min_messages = warning;
SET pg_fence.bypas = on;
SET pg_fence.bypass = 'maybe';
UPDATE plain SET qty = 15;
SHOW pg_fence.bypass;
UPDATE plain SET qty = 15;
SET pg_fence.bypas = on;
SHOW pg_fence.bypas;
SET pg_fence.bypass = 'maybe';
SET pg_fence.token = 6;
SELECT set_config('pg_fence.mode', 'observe', false);
UPDATE plain SET qty = 15;
TABLE plain ORDER BY id;
-- C24: rows that come as they are, as in a data-only restore; afterwards the
-- marks are raised to what the rows hold, and audit() has nothing to say
SET pg_fence.bypass = on;
COPY item FROM stdin;
100	1	50
101	1	51
\.
RESET pg_fence.bypass;
SELECT remedy FROM fence.audit() WHERE target = 'item'::regclass AND remedy LIKE '%raise_mark%bypass-10_%' ORDER BY remedy COLLATE "C" \gexec
SELECT count(*) FROM fence.audit() WHERE target = 'item'::regclass AND remedy LIKE '%raise_mark%bypass-10_%';
UPDATE item SET tok = 49 WHERE id = 100;
UPDATE item SET tok = 50 WHERE id = 100;

DROP TABLE plain, item, area;
DROP OWNED BY regress_fence_admin, regress_fence_writer;
DROP ROLE regress_fence_admin, regress_fence_writer;
