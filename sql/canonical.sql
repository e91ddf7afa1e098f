-- Requests are compared as jsonb values: the same key with an equal request
-- gives the stored response, with any other one it is refused.
--
-- Text that is not ASCII is in test/t/040_canonical.pl.
-- Idempotency case 4, field case E01
\set VERBOSITY sqlstate

CREATE TABLE request (n int GENERATED ALWAYS AS IDENTITY, json text);
INSERT INTO request (json) VALUES
	(NULL), ('null'), ('true'), ('false'),
	-- numbers: as written, and what they are
	('1'), ('1.0'), ('1.00'), ('1e0'), ('10e-1'), ('0.1E+1'), ('-1'), ('-1.0'),
	('10'), ('1e1'), ('100'), ('10000'), ('1e4'), ('10001'), ('100000000'), ('100000001'),
	('0'), ('-0'), ('0.0'), ('-0.000'), ('0e10'),
	('0.1'), ('1e-1'), ('0.10'), ('0.01'), ('1.0001'), ('0.0001'), ('0.00010'),
	('9007199254740992'), ('9007199254740993'), ('9007199254740993.0'), ('-9007199254740993'),
	('1e400'), ('10e399'), ('1e-400'), ('1e131071'), ('1e-16383'),
	('3.0000000000000000000000000000000000000001'), ('3'),
	-- strings
	('""'), ('" "'), ('"1"'), ('"a"'), ('"A"'), ('"\u0041"'), ('"null"'), ('"true"'), ('"[]"'),
	('"a/b"'), ('"a\/b"'), ('"a\tb"'), ('"a\u0009b"'), ('"a\\tb"'),
	-- arrays
	('[]'), ('[[]]'), ('[[[]]]'), ('[[],[]]'), ('[{}]'), ('[null]'), ('[null,null]'), ('[""]'),
	('[1]'), ('[1.0]'), ('["1"]'), ('["a"]'), ('["ab"]'), ('["a","b"]'), ('["b","a"]'),
	('["a","b","c"]'), ('[["a"],"b","c"]'), ('[["a","b"],"c"]'), ('["a",["b","c"]]'), ('["a",["b"],"c"]'),
	('[true]'), ('[false]'), ('["a",1]'),
	-- objects
	('{}'), ('{"":1}'), ('{"":""}'), ('{"a":1}'), ('{"a":1.0}'), ('{"a":"1"}'), ('{"a":[1]}'), ('{"a":true}'),
	('{"a":null}'), ('{"A":1}'), ('{"a":2,"a":1}'), ('{"a":1,"a":2}'), ('{"a":2}'),
	('{"a":1,"b":2}'), ('{ "b" : 2.0, "a" : 1 }'), ('{"a":2,"b":1}'), ('{"aa":1,"b":2}'), ('{"b":2,"aa":1}'),
	('{"a":{"b":1}}'), ('{"a":{"b":1.0}}'), ('{"a":{},"b":1}'), ('{"a":{"b":1},"c":2}'), ('{"a":{"b":1,"c":2}}'),
	('[{"a":1},{"b":2}]'), ('[{"a":1,"b":2}]'), ('[{"b":2},{"a":1}]'), ('{"ab":"c"}'), ('{"a":"bc"}');

-- For each of them a key that was used for it
DO $$
BEGIN
	PERFORM fence.claim('first ' || n, 'canonical', json::jsonb) FROM request;
	PERFORM fence.complete('first ' || n, to_jsonb(n), 'canonical') FROM request;
END
$$;

-- What comes of that key with a request: the response, or a SQLSTATE
CREATE FUNCTION repeated(n int, request jsonb)
RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
	claimed record;
BEGIN
	SELECT * INTO claimed FROM fence.claim('first ' || n, 'canonical', request);
	IF claimed.fresh OR claimed.response IS DISTINCT FROM to_jsonb(n) THEN
		RETURN claimed;
	END IF;
	RETURN 'replay';
EXCEPTION
	WHEN OTHERS THEN
		RETURN SQLSTATE;
END
$$;

CREATE TABLE repetition AS
	SELECT a.n, a.json AS first, b.n AS m, b.json AS second, repeated(a.n, b.json::jsonb) AS outcome
	FROM request a CROSS JOIN request b;
SELECT outcome, count(*) > 0 AS seen FROM repetition GROUP BY 1 ORDER BY 1;

-- It is the verdict of =, and NULL is equal to nothing but NULL.
SELECT first, second, outcome
FROM repetition
WHERE outcome <> CASE WHEN first::jsonb IS DISTINCT FROM second::jsonb THEN 'PF101' ELSE 'replay' END
ORDER BY n, m;

-- which are equal without being written alike
SELECT first, string_agg(second, '   ' ORDER BY m) AS "is the same request as"
FROM repetition
WHERE outcome = 'replay' AND n <> m
GROUP BY n, first
ORDER BY n;

-- Deep, long and wide values, and such with many large numbers
CREATE FUNCTION large(kind text, last text)
RETURNS jsonb
LANGUAGE sql
AS $$
	SELECT CASE kind
		WHEN 'deep' THEN repeat('[', 2000) || last || repeat(']', 2000)
		WHEN 'deep objects' THEN repeat('{"a":', 2000) || last || repeat('}', 2000)
		WHEN 'long' THEN '["' || repeat('x', 1000000) || '",' || last || ']'
		WHEN 'wide' THEN '[' || repeat('[],', 100000) || last || ']'
		WHEN 'many keys' THEN '{' || (SELECT string_agg(format('"%s":%s', i, i), ',') FROM generate_series(1, 20000) i) || ',"":' || last || '}'
		WHEN 'large numbers' THEN '[' || repeat('1e131071,-1e-16000,', 50000) || last || ']'
	END::jsonb;
$$;
SELECT kind, first.fresh, fence.complete(kind, to_jsonb(kind), 'large') AS response
FROM unnest('{deep,deep objects,long,wide,many keys,large numbers}'::text[]) kind
	CROSS JOIN LATERAL fence.claim(kind, 'large', large(kind, '1')) first;
SELECT kind, again.fresh, again.response
FROM unnest('{deep,deep objects,long,wide,many keys,large numbers}'::text[]) kind
	CROSS JOIN LATERAL fence.claim(kind, 'large', large(kind, '1.0')) again;
SELECT fence.claim('deep', 'large', large('deep', '2'));
SELECT fence.claim('deep objects', 'large', large('deep objects', '2'));
SELECT fence.claim('long', 'large', large('long', '2'));
SELECT fence.claim('wide', 'large', large('wide', '2'));
SELECT fence.claim('many keys', 'large', large('many keys', '2'));
SELECT fence.claim('large numbers', 'large', large('large numbers', '2'));

DELETE FROM fence.idempotency_key WHERE scope IN ('canonical', 'large');
DROP FUNCTION large, repeated;
DROP TABLE repetition, request;
