-- Names: odd identifiers of tables, schemas and columns, every kind of value in
-- a template, and that the settings of a session do not change a resource.
--
-- Field cases: C15 C23 F03 G08
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SET lc_monetary = 'C';

-- C15: odd identifiers
CREATE SCHEMA "S x";
CREATE TABLE "S x"."we""ird Tbl" (
	"{" int, "}" int, "a b" text, "sel""ect" text, "Up" text, up text, "%s" text, "it's" text, "back\slash" text,
	"a}b" text, "to ken" bigint);
INSERT INTO "S x"."we""ird Tbl" VALUES (1, 2, 'ab', 'sel', 'Upper', 'lower', '%d', 'quote', 'bs', 'brace', NULL);
CREATE VIEW odd AS SELECT resource, token_column FROM fence.protected_tables WHERE target = '"S x"."we""ird Tbl"'::regclass;
-- protects the table with a template, and tells what the resource of its row is
CREATE FUNCTION resource_of(target regclass, template text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	message text;
BEGIN
	PERFORM fence.protect(target, template);
	EXECUTE format('DELETE FROM %s', target);
	RETURN 'deleted';
EXCEPTION WHEN SQLSTATE 'PF002' THEN
	GET STACKED DIAGNOSTICS message = MESSAGE_TEXT;
	RETURN substring(message FROM 'resource "(.*)"$');
END
$$;
SELECT t, resource_of('"S x"."we""ird Tbl"', t)
FROM unnest(ARRAY['x', 'x{a b}', '{sel"ect}', '{Up}{up}', '{%s}', '{it''s}', '{back\slash}', '{}}}', '{a}}b}',
	'{{', '{{x}}', '}}', '}', 'x}', '%s', '{{{a b}', '{a b}{a b}', '{a b}:{up}', 'it''s "{up}"', '\{up}']) t;
SELECT refusal($$SELECT fence.protect('"S x"."we""ird Tbl"', '{UP}')$$), refusal($$SELECT fence.protect('"S x"."we""ird Tbl"', '{"Up"}')$$);
SELECT fence.protect('"S x"."we""ird Tbl"', 'odd-{a b}', 'to ken');
TABLE odd;
UPDATE "S x"."we""ird Tbl" SET "}" = 3;
UPDATE "S x"."we""ird Tbl" SET "}" = 3, "to ken" = 4;
UPDATE "S x"."we""ird Tbl" SET "}" = 3, "to ken" = 3;
SELECT "}", "to ken" FROM "S x"."we""ird Tbl";
SELECT fence.mark('odd-ab');
SELECT fence.unprotect('"S x"."we""ird Tbl"');
DROP SCHEMA "S x" CASCADE;

-- names of 63 bytes everywhere
SELECT repeat('c', 63) AS c, repeat('t', 63) AS t, repeat('s', 63) AS s, repeat('k', 63) AS k \gset
CREATE SCHEMA :s;
CREATE TABLE :s.:t (:c text, :k bigint);
SELECT fence.protect(:'s' || '.' || :'t', 'long-{' || :'c' || '}', :'k');
INSERT INTO :s.:t VALUES ('v', 5);
UPDATE :s.:t SET :c = 'v', :k = 4;
UPDATE :s.:t SET :c = 'v', :k = 6;
SELECT fence.mark('long-v');
DROP SCHEMA :s CASCADE;

-- C15: values
CREATE TABLE val (v text, tok bigint);
SELECT fence.protect('val', 'val-{v}', 'tok');
INSERT INTO val VALUES ($$'; drop table val; --$$, 1), ($$"$$, 2), ('{v}', 3), ('%s %n', 4), (E'a\nb\tc', 5), ('', 6), ('\', 7);
INSERT INTO val VALUES (NULL, 8);
INSERT INTO val VALUES (repeat('x', 508), 9);
INSERT INTO val VALUES (repeat('x', 509), 10);
INSERT INTO val VALUES (repeat('x', 1000000), 11);
UPDATE val SET v = repeat('x', 1000000), tok = 12 WHERE v = '"' AND fence.check('val-"', 2);
-- 254 characters of two bytes each fit, 255 do not
INSERT INTO val VALUES (repeat(E'\xC3\xA9', 254), 13);
INSERT INTO val VALUES (repeat(E'\xC3\xA9', 255), 14);
SELECT substr(translate(v, E'\n\t', '__'), 1, 30) AS v, octet_length(v), tok, fence.mark('val-' || v) FROM val WHERE tok <> 13 ORDER BY tok;
UPDATE val SET tok = tok - 1;
UPDATE val SET tok = tok + 100;
SELECT count(*), bool_and(fence.mark('val-' || v) = tok) AS marks FROM val;
DROP TABLE val;
-- of megabytes, where it is not part of the name
CREATE TABLE val (id int, v text, tok bigint);
ALTER TABLE val ALTER v SET STORAGE EXTERNAL;
SELECT fence.protect('val', 'big-{id}', 'tok');
BEGIN;
SELECT fence.check('big-1', 1);
INSERT INTO val VALUES (1, repeat('x', 1000000));
UPDATE val SET id = id;
COMMIT;
UPDATE val SET tok = 2;
SELECT octet_length(v), v = repeat('x', 1000000) AS intact, tok FROM val;
DROP TABLE val;

-- Every type: the resource of a row is the same whatever the session has set.
CREATE TYPE color AS ENUM ('red', 'dark blue');
CREATE TYPE pair AS (d date, n numeric);
CREATE DOMAIN code AS char(5);
CREATE DOMAIN day AS date;
CREATE TABLE types (
	i2 smallint, i4 int, i8 bigint, txt text, vc varchar(10), ch char(6), one "char", nam name, bo boolean,
	num numeric, num2 numeric(10, 2), u uuid, o oid, f4 real, f8 double precision, cash money,
	d date, ti time, ttz timetz, ts timestamp, tstz timestamptz, iv interval,
	by bytea, en color, arr int[], tarr timestamptz[], row pair, dom code, dday day, js json, jb jsonb,
	ip inet, mac macaddr, bi bit(3), vb varbit, pt point, rng daterange, tsr tstzrange, reg regclass);
SET timezone = 'Asia/Tokyo';
SET datestyle = 'German';
SET intervalstyle = 'sql_standard';
SET extra_float_digits = -3;
SET bytea_output = 'escape';
INSERT INTO types VALUES (
	-7, 42, 9007199254740993, 'text', 'varchar', 'ch', 'x', 'name', true,
	1.50, 1.5, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 7, 0.1, 0.1, 12.5,
	'2026-03-29', '12:34:56.789', '12:34:56+09', '2026-03-29 02:30', '2026-03-29 02:30:00+01', '1 year 2 days 03:04:05',
	'\x00ff61', 'dark blue', '{1,NULL,3}', '{2026-03-29 02:30:00+01}', ROW('2026-03-29', 1.50), 'ab', '2026-03-29', '{"a" : 1}', '{"a" : 1}',
	'10.0.0.1/8', '08:00:2b:01:02:03', B'101', B'11', '(1.5,2)', '[2026-03-01,2026-03-31]', '[2026-03-29 02:30:00+01,)', 'pg_class');
CREATE TEMPORARY TABLE seen AS
	SELECT attname, attnum, resource_of('types', '{' || attname || '}') AS resource
	FROM pg_attribute WHERE attrelid = 'types'::regclass AND attnum > 0;
SET timezone = 'America/New_York';
SET datestyle = 'SQL, DMY';
SET intervalstyle = 'iso_8601';
SET extra_float_digits = 3;
SET bytea_output = 'hex';
SET search_path = '';
SELECT attname, resource
FROM pg_temp.seen
WHERE resource <> public.resource_of('public.types', '{' || attname || '}');
SET search_path = public, pg_catalog;
SELECT attname, resource
FROM seen
WHERE resource <> resource_of('types', '{' || attname || '}');
RESET search_path;
RESET timezone;
RESET datestyle;
RESET intervalstyle;
RESET extra_float_digits;
RESET bytea_output;
SELECT attname, '[' || resource || ']' AS resource FROM seen ORDER BY attnum;
SELECT count(*) FROM types;
-- several in one name, with a token column, both moments of judging
SET timezone = 'Asia/Tokyo';
SELECT fence.protect('types', 'many/{d}/{tstz}/{ch}/{f8}/{arr}');
UPDATE types SET i4 = 43 WHERE fence.check('many/2026-03-29/2026-03-29 01:30:00+00/ch/0.1/{1,NULL,3}', 1);
SET timezone = 'America/New_York';
SET datestyle = 'Postgres, MDY';
UPDATE types SET i4 = 44 WHERE fence.check('many/2026-03-29/2026-03-29 01:30:00+00/ch/0.1/{1,NULL,3}', 1);
SELECT i4 FROM types;
-- what the session had set is what it still has
SHOW datestyle;
SHOW timezone;
-- also after an error in between
SELECT refusal('UPDATE types SET i4 = 45');
SHOW datestyle;
RESET timezone;
RESET datestyle;
-- equal values that are written differently are different resources
SELECT fence.protect('types', '{num}');
BEGIN;
SELECT fence.check('1.50', 1);
SAVEPOINT s;
UPDATE types SET num = 1.5;
ROLLBACK TO s;
UPDATE types SET num = 1.50;
UPDATE types SET num = 3.0 / 2;
ROLLBACK;
-- trailing blanks of char(n) are padding, those of text are not
SELECT fence.protect('types', 'ch-{ch}');
UPDATE types SET ch = 'ch   ' WHERE fence.check('ch-ch', 1);
SELECT fence.protect('types', 'txt-{txt}');
UPDATE types SET txt = 'text ' WHERE fence.check('txt-text', 1);
DROP TABLE types;
DROP TYPE color, pair;
DROP DOMAIN code, day;

-- C23: an empty search_path is enough, for all of it
CREATE TABLE public.path (id int, v timestamptz, tok bigint);
SET search_path = '';
SELECT fence.protect('public.path', 'path-{id}', 'tok');
SELECT acquired, token FROM fence.acquire('path-1', 'a', '1 hour');
INSERT INTO public.path VALUES (1, NULL, 1);
INSERT INTO public.path VALUES (1, NULL, NULL);
UPDATE public.path SET tok = 1;
SELECT target, resource FROM fence.protected_tables WHERE resource LIKE 'path-%';
SELECT extended FROM fence.extend('path-1', 1);
SELECT state FROM fence.leases WHERE resource = 'path-1';
SELECT fence.check('path-1', 1), fence.mark('path-1'), fence.release('path-1', 1);
SELECT fence.raise_mark('path-1', 2);
RESET search_path;
SELECT fence.unprotect('path');
DROP TABLE path;
DROP FUNCTION resource_of(regclass, text);
