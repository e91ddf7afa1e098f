-- Wrong arguments: every function refuses them with 22023, names the value,
-- and has changed nothing.
--
-- Field cases: B04 B07 B08 B09 F04
\set VERBOSITY sqlstate
SET intervalstyle = 'postgres';

SELECT acquired, token FROM fence.acquire('arg', 'owner', '1 hour');
SELECT fence.raise_mark('arg-external', 9007199254740993);
CREATE TABLE arg (id int PRIMARY KEY, tok bigint);
CREATE TEMPORARY TABLE before AS SELECT r.*, r.xmin::text AS x FROM fence.resource r WHERE name LIKE 'arg%';

-- resource names
SELECT call, refusal('SELECT fence.' || call, VARIADIC words)
FROM (VALUES
	($$acquire(NULL, 'h')$$, '{resource,null}'::text[]),
	($$acquire('', 'h')$$, '{resource,empty}'),
	($$acquire(repeat('x', 513), 'h')$$, '{resource,xxx,513,512}'),
	($$acquire(repeat('x', 1000000), 'h')$$, '{resource,xxx,1000000,512}'),
	-- 257 characters of two bytes each
	($$acquire(repeat(E'\xC3\xA9', 257), 'h')$$, '{resource,514,512}'),
	($$extend(NULL, 1)$$, '{resource,null}'),
	($$extend('', 1)$$, '{resource,empty}'),
	($$extend(repeat('x', 513), 1)$$, '{resource,xxx,513,512}'),
	($$release(NULL, 1)$$, '{resource,null}'),
	($$release('', 1)$$, '{resource,empty}'),
	($$release(repeat('x', 513), 1)$$, '{resource,xxx,513,512}'),
	($$check(NULL, 1)$$, '{resource,null}'),
	($$check('', 1)$$, '{resource,empty}'),
	($$check(repeat('x', 513), 1)$$, '{resource,xxx,513,512}'),
	($$mark(NULL)$$, '{resource,null}'),
	($$mark('')$$, '{resource,empty}'),
	($$mark(repeat('x', 513))$$, '{resource,xxx,513,512}'),
	($$raise_mark(NULL, 1)$$, '{resource,null}'),
	($$raise_mark('', 1)$$, '{resource,empty}'),
	($$raise_mark(repeat('x', 513), 1)$$, '{resource,xxx,513,512}')
) v (call, words);

-- B04: fencing tokens
SELECT call, refusal('SELECT fence.' || call, VARIADIC words)
FROM (VALUES
	($$extend('arg', NULL)$$, '{token,null}'::text[]),
	($$extend('arg', 0)$$, '{token,": 0"}'),
	($$extend('arg', -1)$$, '{token,": -1"}'),
	($$release('arg', NULL)$$, '{token,null}'),
	($$release('arg', 0)$$, '{token,": 0"}'),
	($$release('arg', -1)$$, '{token,": -1"}'),
	($$check('arg', NULL)$$, '{token,null}'),
	($$check('arg', 0)$$, '{token,": 0"}'),
	($$check('arg', -1)$$, '{token,": -1"}'),
	($$check('arg', -9223372036854775808)$$, '{token,-9223372036854775808}'),
	($$raise_mark('arg', NULL)$$, '{token,null}'),
	($$raise_mark('arg', 0)$$, '{token,": 0"}'),
	($$raise_mark('arg', -1)$$, '{token,": -1"}'),
	($$raise_mark('arg-external', 5)$$, '{"to 5",9007199254740993}')
) v (call, words);

-- F04: durations
SELECT call, refusal('SELECT fence.' || call, VARIADIC words)
FROM (VALUES
	($$acquire('arg-free', 'h', NULL)$$, '{ttl,null}'::text[]),
	($$acquire('arg-free', 'h', '0')$$, '{ttl,00:00:00}'),
	($$acquire('arg-free', 'h', '-1 s')$$, '{ttl,-00:00:01}'),
	($$acquire('arg-free', 'h', '0.4 ms')$$, '{ttl,00:00:00.0004}'),
	($$acquire('arg-free', 'h', '1 day 1 ms')$$, '{ttl,"1 day 00:00:00.001"}'),
	($$acquire('arg-free', 'h', '1 month')$$, '{ttl,"1 mon"}'),
	($$acquire('arg-free', 'h', '100 years')$$, '{ttl,"100 years"}'),
	($$acquire('arg-free', 'h', '178000000 years')$$, '{ttl,"178000000 years"}'),
	($$acquire('arg-free', 'h', '-178000000 years')$$, '{ttl,"-178000000 years"}'),
	($$acquire('arg-free', 'h', '2562047788 hours')$$, '{ttl,"2562047788:00:00"}'),
	($$acquire('arg-free', 'h', wait => NULL)$$, '{wait,null}'),
	($$acquire('arg-free', 'h', wait => '-1 ms')$$, '{wait,-00:00:00.001}'),
	($$acquire('arg-free', 'h', wait => '5 minutes 1 ms')$$, '{wait,00:05:00.001}'),
	($$acquire('arg-free', 'h', wait => '6 minutes')$$, '{wait,00:06:00}'),
	($$acquire('arg-free', 'h', wait => '178000000 years')$$, '{wait,"178000000 years"}'),
	($$extend('arg', 1, NULL)$$, '{ttl,null}'),
	($$extend('arg', 1, '0')$$, '{ttl,00:00:00}'),
	($$extend('arg', 1, '-1 s')$$, '{ttl,-00:00:01}'),
	($$extend('arg', 1, '0.4 ms')$$, '{ttl,00:00:00.0004}'),
	($$extend('arg', 1, '1 day 1 ms')$$, '{ttl,"1 day 00:00:00.001"}'),
	($$extend('arg', 1, '178000000 years')$$, '{ttl,"178000000 years"}')
) v (call, words);
-- what one server cannot even read, another one knows
SELECT refusal($$SELECT fence.acquire('arg-free', 'h', 'infinity')$$) IN ('22007', '22023') AS infinity,
	refusal($$SELECT fence.acquire('arg-free', 'h', '-infinity')$$) IN ('22007', '22023') AS minus_infinity,
	refusal($$SELECT fence.acquire('arg-free', 'h', wait => 'infinity')$$) IN ('22007', '22023') AS wait;

-- the rest
SELECT call, refusal('SELECT fence.' || call, VARIADIC words)
FROM (VALUES
	($$acquire('arg-free', NULL)$$, '{holder,null}'::text[]),
	($$acquire('arg-free', '')$$, '{holder,empty}'),
	($$acquire('arg-free', repeat('h', 513))$$, '{holder,hhh,513,512}'),
	($$acquire('arg-free', 'h', request_id => '')$$, '{request_id,empty}'),
	($$acquire('arg-free', 'h', request_id => repeat('q', 256))$$, '{request_id,qqq,256,255}'),
	($$acquire('arg-free', 'h', lease => NULL)$$, '{lease,null}'),
	($$acquire('arg-free', 'h', lease => '')$$, '{lease,empty}'),
	($$acquire('arg-free', 'h', lease => 'Postgres')$$, '{lease,Postgres}'),
	($$acquire('arg-free', 'h', lease => 'no_such_server')$$, '{lease,no_such_server}'),
	($$check('arg', 1, holder => '')$$, '{holder,empty}'),
	($$check('arg', 1, holder => repeat('h', 513))$$, '{holder,hhh,513,512}'),
	($$check('arg', 1, lease => '')$$, '{lease,empty}'),
	($$check('arg', 1, lease => 'no_such_server')$$, '{lease,no_such_server}'),
	($$unprotect(NULL)$$, '{table,null}'),
	($$grant_writer(NULL)$$, '{role,null}'),
	($$grant_writer(4294967295::oid::regrole)$$, '{4294967295}')
) v (call, words);

-- what serves the audit: a table that is dropped meanwhile has no problems
SELECT fence.policy_problem(4294967295::oid::regclass, '') IS NULL AS no_problem;
SELECT count(*) FROM fence.stored_above_mark(4294967295::oid::regclass, '');

-- protect()
SELECT call, refusal('SELECT fence.protect(' || call || ')', VARIADIC words)
FROM (VALUES
	($$NULL, 'r'$$, '{table,null}'::text[]),
	($$4294967295::oid::regclass, 'r'$$, '{4294967295}'),
	($$'arg', NULL$$, '{template,null}'),
	($$'arg', ''$$, '{template,empty}'),
	($$'arg', repeat('r', 513)$$, '{template,512}'),
	($$'arg', repeat('r', 8193)$$, '{template,rrr,8193,8192}'),
	($$'arg', 'r-{'$$, '{r-\{,"byte 3",brace}'),
	($$'arg', 'r-{id'$$, '{r-\{id,"byte 3",brace}'),
	($$'arg', '{}'$$, '{\{\},"byte 1"}'),
	($$'arg', 'r-{nope}'$$, '{nope,arg}'),
	($$'arg', 'r-{ID}'$$, '{ID,arg}'),
	($$'arg', 'r-{id }'$$, '{"id ",arg}'),
	($$'arg', 'r-{ctid}'$$, '{ctid,arg}'),
	($$'arg', 'r-{' || repeat('c', 64) || '}'$$, '{"byte 3",identifier}'),
	($$'arg', 'r', 'nope'$$, '{nope,arg}'),
	($$'arg', 'r', ''$$, '{arg}'),
	($$'arg', 'r', 'id'$$, '{id,arg,integer,bigint}'),
	($$'arg', 'r', 'ctid'$$, '{ctid,arg}'),
	($$'arg', 'r', 'tok', ''$$, '{marks,empty}'),
	($$'arg', 'r', 'tok', 'rows'$$, '{marks,rows}'),
	($$'arg', 'r', 'tok', 'resource'$$, '{resource,token column}'),
	($$'arg', 'r', NULL, 'row'$$, '{row,token column}'),
	($$'arg', 'r', NULL, 'both'$$, '{both,token column}'),
	($$'arg', 'r', lease => ''$$, '{lease,empty}'),
	($$'arg', 'r', lease => 'no_such_server'$$, '{lease,no_such_server}')
) v (call, words);
SELECT count(*) FROM pg_trigger WHERE tgrelid = 'arg'::regclass;

-- B07: numbers beyond 2^53 keep every digit, and nothing is rounded into place
SELECT call, refusal('SELECT fence.' || call)
FROM (VALUES
	($$check('arg-external', 9007199254740992)$$),
	($$check('arg-external', '9007199254740992')$$),
	($$check('arg-external', 9007199254740993::float8)$$),
	($$check('arg-external', 9007199254740993::numeric)$$),
	($$check('arg-external', 9007199254740993.0)$$),
	($$check('arg-external', '9007199254740993'::jsonb)$$),
	($$check('arg-external', '9007199254740993'::text)$$),
	($$hand_over('arg', 1::float8, 'h')$$),
	($$hand_over('arg', 1.5, 'h')$$),
	($$hand_over('arg', '1'::text, 'h')$$),
	($$raise_mark('arg-external', 9007199254740994::float8)$$)
) v (call);
SELECT fence.check('arg-external', '9007199254740993');

-- B08: the ends of the range
SELECT call, refusal('SELECT fence.' || call)
FROM (VALUES
	($$check('arg-range', '18446744073709551615')$$),
	($$check('arg-range', '9223372036854775808')$$),
	($$check('arg-range', '1e3')$$),
	($$check('arg-range', '12abc')$$),
	($$check('arg-range', '')$$),
	-- B09: the value of a lock is no token
	($$check('arg-range', '8a1c0d5e-6a6e-4b9b-8f0e-0f5b5e0c6a11')$$),
	($$check('arg-range', '8a1c0d5e-6a6e-4b9b-8f0e-0f5b5e0c6a11'::uuid)$$)
) v (call);
SELECT fence.check('arg-range', ' 42 '), fence.mark('arg-range');
SELECT fence.check('arg-range', 9223372036854775807), fence.mark('arg-range');
SELECT fence.check('arg-range', 9223372036854775807);
SELECT refusal($$SELECT fence.acquire('arg-range', 'h')$$, 'arg-range', '9223372036854775807');
SELECT refusal($$SELECT fence.check('arg-range', 9223372036854775806)$$, '9223372036854775806', '9223372036854775807');
SELECT fence.mark('arg-range');

-- all that changed nothing
SELECT count(*) FROM fence.resource WHERE name IN ('arg-free', '') OR name LIKE 'xxx%';
SELECT count(*) FROM (
	(TABLE before EXCEPT ALL SELECT r.*, r.xmin::text FROM fence.resource r)
	UNION ALL
	(SELECT r.*, r.xmin::text FROM fence.resource r WHERE name IN ('arg', 'arg-external') EXCEPT ALL TABLE before)) d;

-- The ends of what is allowed.
SELECT acquired, token, remaining <= '1 ms' AS short FROM fence.acquire('arg-1ms', 'h', '1 ms');
SELECT acquired, remaining > '23:59:00' AS long FROM fence.acquire('arg-1day', 'h', '1 day');
SELECT acquired, remaining > '23:59:00' AS long FROM fence.acquire('arg-24h', 'h', '24:00', '5 minutes');
SELECT extended, remaining > '23:59:00' AS long FROM fence.extend('arg', 1, '1 day');
SELECT extended FROM fence.extend('arg', 1, '1 ms');
-- names of 512 bytes that no compression makes shorter, everywhere at once
SELECT string_agg(md5(i::text), '') AS long FROM generate_series(1, 16) i \gset
SELECT acquired, token, octet_length(held_by) FROM fence.acquire(:'long', :'long', request_id => left(:'long', 255));
SELECT acquired, token FROM fence.acquire(:'long', :'long', request_id => left(:'long', 255));
SELECT fence.check(:'long', 1, :'long', 'postgres'), fence.mark(:'long');
SELECT octet_length(holder) FROM fence.leases WHERE resource = :'long';
SELECT acquired, token, octet_length(held_by) FROM fence.hand_over(:'long', 1, right(:'long', 511) || '!');
SELECT fence.break_lease(:'long'), fence.mark(:'long');
SELECT octet_length(resource), acquired, token FROM fence.acquire_many(ARRAY[:'long'], :'long');
SELECT fence.release(:'long', 4);
SELECT fence.check(repeat(E'\xC3\xA9', 256), 1), fence.mark(repeat(E'\xC3\xA9', 256));
-- names are bytes: case, blanks and everything else count
SELECT fence.check(r, 7) FROM unnest(ARRAY['Arg', 'ARG', 'arg ', ' arg', E'arg\n', '''', '{', '%s', '\', ' ']) r;
SELECT r, fence.mark(r) FROM unnest(ARRAY['arg', 'Arg', 'ARG', 'aRG', 'arg ', ' arg', '''', '{', '%s', '\', ' ', '  ']) r;

DROP TABLE arg;
