-- Histograms of durations: bounds, percentiles, and how they are drawn. These
-- functions need no shared memory.
SET intervalstyle = 'postgres';

-- 30 upper bounds, in order
SELECT array_length(fence.histogram_bounds(), 1), bool_and(b > coalesce(before, '0')) AS rising
FROM (SELECT b, lag(b) OVER (ORDER BY n) AS before FROM unnest(fence.histogram_bounds()) WITH ORDINALITY u (b, n)) x;
SELECT fence.histogram_bounds();

-- a histogram with these counts in these buckets, 0 elsewhere
CREATE FUNCTION histogram(counts jsonb) RETURNS bigint[] LANGUAGE sql IMMUTABLE AS
	$$SELECT array_agg(coalesce((counts ->> i::text)::bigint, 0) ORDER BY i) FROM generate_series(1, 31) i$$;

-- 9: up to 10 ms, 10: up to 20 ms, 31: more than a day
SELECT f, fence.histogram_percentile(histogram('{"9": 50, "10": 50}'), f) AS two,
	fence.histogram_percentile(histogram('{"1": 4}'), f) AS lowest,
	fence.histogram_percentile(histogram('{"31": 3}'), f) AS highest,
	fence.histogram_percentile(histogram('{"9": 98, "31": 2}'), f) AS tail,
	fence.histogram_percentile(histogram('{}'), f) AS empty
FROM unnest(ARRAY[0, 0.25, 0.5, 0.75, 0.99, 1]) f;
-- so large that their sum exceeds 64 bits
SELECT fence.histogram_percentile(histogram('{"20": 9223372036854775807, "21": 9223372036854775807}'), 0.5);

SELECT fence.histogram_text(histogram('{"5": 1, "6": 7, "8": 20, "15": 2}'), 20);
SELECT fence.histogram_text(histogram('{"1": 1000000, "30": 1, "31": 2}'), 10);
SELECT fence.histogram_text(histogram('{}')) = '' AS empty;
SELECT length(fence.histogram_text(histogram('{"3": 5}'))) AS length;
-- all labels
SELECT fence.histogram_text(array_agg(1::bigint), 1) FROM generate_series(1, 31);

-- what is no histogram
\set VERBOSITY sqlstate
SELECT refusal('SELECT ' || call, word) FROM (VALUES
	($$fence.histogram_percentile('{1}', 0.5)$$, 'array of 31'),
	($$fence.histogram_percentile('{}', 0.5)$$, 'array of 31'),
	($$fence.histogram_percentile(NULL, 0.5)$$, 'null'),
	($$fence.histogram_percentile(histogram('{}'), NULL)$$, 'null'),
	($$fence.histogram_percentile(histogram('{}'), 1.1)$$, '1.1'),
	($$fence.histogram_percentile(histogram('{}'), -0.1)$$, '-0.1'),
	($$fence.histogram_percentile(histogram('{}'), 'NaN')$$, 'between 0 and 1'),
	($$fence.histogram_percentile(histogram('{"3": -1}'), 0.5)$$, 'negative'),
	($$fence.histogram_percentile(array_replace(histogram('{"3": 1}'), 1, NULL), 0.5)$$, 'null'),
	($$fence.histogram_percentile(ARRAY[histogram('{}'), histogram('{}')], 0.5)$$, 'array of 31'),
	($$fence.histogram_text(histogram('{}'), 0)$$, '0'),
	($$fence.histogram_text(histogram('{}'), 1001)$$, '1001'),
	($$fence.histogram_text(histogram('{}'), NULL)$$, 'null'),
	($$fence.histogram_text(NULL)$$, 'null')) c (call, word);
DROP FUNCTION histogram(jsonb);
