-- The tables that test/bench compares, all of one shape.  :module is the bench's library.
\set ON_ERROR_STOP on
SET client_min_messages = warning;

CREATE EXTENSION pg_fence;
CREATE SCHEMA bench;

CREATE FUNCTION bench.mark(label text) RETURNS text
LANGUAGE c AS :'module', 'bench_mark';
CREATE FUNCTION bench.empty() RETURNS trigger
LANGUAGE c AS :'module', 'bench_empty';
CREATE FUNCTION bench.compare() RETURNS trigger
LANGUAGE c AS :'module', 'bench_compare';
CREATE FUNCTION bench.transition() RETURNS trigger
LANGUAGE c AS :'module', 'bench_transition';
CREATE FUNCTION bench.compare_plpgsql() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.token < OLD.token THEN
		RAISE EXCEPTION 'token is stale';
	END IF;
	RETURN NEW;
END $$;

-- Half of each page is free, and may be used: updates are HOT, and pages are pruned when
-- they are full, as in the middle of a table's life.
CREATE FUNCTION bench.make_table(name text, kind text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE %I (id integer PRIMARY KEY, token bigint NOT NULL DEFAULT 33,
		qty integer NOT NULL DEFAULT 0, place integer NOT NULL) WITH (fillfactor = 50)', name);
	CASE kind
		WHEN 'plain' THEN
		WHEN 'empty', 'compare', 'compare_plpgsql' THEN
			EXECUTE format('CREATE TRIGGER t BEFORE UPDATE ON %I FOR EACH ROW EXECUTE FUNCTION bench.%I()', name, kind);
		WHEN 'after' THEN
			EXECUTE format('CREATE TRIGGER t AFTER INSERT ON %I FOR EACH ROW EXECUTE FUNCTION bench.empty()', name);
		WHEN 'transition' THEN
			EXECUTE format('CREATE TRIGGER t AFTER INSERT ON %I REFERENCING NEW TABLE AS n EXECUTE FUNCTION bench.transition()', name);
		WHEN 'row', 'both' THEN
			PERFORM fence.protect(name::regclass, 'stock:{place}', 'token', kind);
		WHEN 'resource' THEN
			PERFORM fence.protect(name::regclass, 'stock:{place}');
		WHEN 'table' THEN
			PERFORM fence.protect(name::regclass, 'stock:1');
	END CASE;
END $$;

CREATE FUNCTION bench.fill(name text, rows_per_place integer, rows integer) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('ALTER TABLE %I DISABLE TRIGGER USER', name);
	EXECUTE format('INSERT INTO %I (id, place) SELECT n, 1 + (n - 1) / %s FROM generate_series(1, %s) n',
		name, rows_per_place, rows);
	EXECUTE format('ALTER TABLE %I ENABLE TRIGGER USER', name);
	EXECUTE format('ALTER TABLE %I RESET (fillfactor)', name);
END $$;

-- one_*: a row for each place.  many_*: a thousand rows for each.  copy_*: empty.
SELECT bench.make_table('one_' || kind, kind), bench.fill('one_' || kind, 1, 1000),
	bench.make_table('many_' || kind, kind), bench.fill('many_' || kind, 1000, 10000),
	bench.make_table('copy_' || kind, kind)
FROM unnest('{plain, empty, compare, compare_plpgsql, row, resource, both, table}'::text[]) kind \g /dev/null

SELECT bench.make_table('copy_' || kind, kind)
FROM unnest('{after, transition}'::text[]) kind \g /dev/null

-- The same with a hundred columns, and with 64 partitions.
CREATE FUNCTION bench.make_large(kind text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('CREATE TABLE columns_%1$s (LIKE one_plain INCLUDING ALL)', kind);
	FOR n IN 1 .. 96 LOOP
		EXECUTE format('ALTER TABLE columns_%s ADD COLUMN c%s integer DEFAULT 1', kind, n);
	END LOOP;
	EXECUTE format('CREATE TABLE parts_%1$s (LIKE one_plain INCLUDING ALL) PARTITION BY HASH (id)', kind);
	FOR n IN 0 .. 63 LOOP
		EXECUTE format('CREATE TABLE parts_%1$s_%2$s PARTITION OF parts_%1$s FOR VALUES WITH (MODULUS 64, REMAINDER %2$s)', kind, n);
	END LOOP;
	EXECUTE format('INSERT INTO columns_%s (id, place) SELECT n, n FROM generate_series(1, 1000) n', kind);
	EXECUTE format('INSERT INTO parts_%s (id, place) SELECT n, n FROM generate_series(1, 1000) n', kind);
	IF kind <> 'plain' THEN
		PERFORM fence.protect(('columns_' || kind)::regclass, 'stock:{place}', 'token', kind),
			fence.protect(('parts_' || kind)::regclass, 'stock:{place}', 'token', kind);
	END IF;
END $$;
SELECT bench.make_large(kind) FROM unnest('{plain, row}'::text[]) kind \g /dev/null

-- Marks of the places; their tokens come from elsewhere.
INSERT INTO fence.resource (name, token, mark, marked_at, renewals)
SELECT 'stock:' || n, 0, 33, now(), 0 FROM generate_series(1, 1000) n
UNION ALL
SELECT repeat('0', 497) || n, 0, 33, now(), 0 FROM generate_series(1, 100) n;

-- A write that comes too late, caught by the application.
CREATE FUNCTION bench.too_late(name text, stale bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM fence.check(name, stale);
	RAISE 'a stale token was accepted';
EXCEPTION WHEN SQLSTATE 'PF001' THEN
	NULL;
END $$;

-- The same things as users write them by hand.
CREATE TABLE hand_mark (name text PRIMARY KEY, mark bigint NOT NULL);
INSERT INTO hand_mark SELECT 'stock:' || n, 33 FROM generate_series(1, 1000) n;

CREATE TABLE hand_lease (name text PRIMARY KEY, holder text NOT NULL, token bigint NOT NULL,
	expires_at timestamptz NOT NULL);

CREATE TABLE hand_key (key text PRIMARY KEY, response jsonb, claimed_at timestamptz NOT NULL DEFAULT now());
INSERT INTO hand_key SELECT 'done:' || n, '{"ok": true}' FROM generate_series(1, 1000) n;

-- Operations that are done already.
SELECT fence.claim('done:' || n), fence.complete('done:' || n, '{"ok": true}') FROM generate_series(1, 1000) n \g /dev/null
SELECT fence.claim('done', 'stock:' || n), fence.complete('done', '{"ok": true}', 'stock:' || n)
FROM generate_series(1, 100) n \g /dev/null

VACUUM (FREEZE, ANALYZE);
CHECKPOINT;
