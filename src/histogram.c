/*-------------------------------------------------------------------------
 *
 * histogram.c
 *	  Histograms of durations.
 *
 * All have the same bounds, so that they can be added up, and compared
 * between resources and servers.
 *
 * IDENTIFICATION
 *	  src/histogram.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "args.h"
#include "histogram.h"
#include "resource.h"

PG_FUNCTION_INFO_V1(fence_histogram_bounds);
PG_FUNCTION_INFO_V1(fence_histogram_percentile);
PG_FUNCTION_INFO_V1(fence_histogram_text);

#define USECS_PER_MS	INT64CONST(1000)

/* The longest bar of histogram_text(), in characters. */
#define WIDTH_MAX		1000

/*
 * Upper bounds of the buckets, in microseconds: a round trip on the same
 * machine is some ten microseconds, a lease lasts a day at most.
 */
static const int64 bounds[FENCE_HISTOGRAM_BOUNDS] = {
	20, 50, 100, 200, 500,
	1 * USECS_PER_MS, 2 * USECS_PER_MS, 5 * USECS_PER_MS,
	10 * USECS_PER_MS, 20 * USECS_PER_MS, 50 * USECS_PER_MS,
	100 * USECS_PER_MS, 200 * USECS_PER_MS, 500 * USECS_PER_MS,
	1 * USECS_PER_SEC, 2 * USECS_PER_SEC, 5 * USECS_PER_SEC,
	10 * USECS_PER_SEC, 20 * USECS_PER_SEC, 30 * USECS_PER_SEC,
	1 * USECS_PER_MINUTE, 2 * USECS_PER_MINUTE, 5 * USECS_PER_MINUTE,
	10 * USECS_PER_MINUTE, 30 * USECS_PER_MINUTE,
	1 * USECS_PER_HOUR, 2 * USECS_PER_HOUR, 6 * USECS_PER_HOUR,
	12 * USECS_PER_HOUR, USECS_PER_DAY
};

/*
 * The bucket of a duration in microseconds.
 */
int
fence_histogram_bucket(int64 duration)
{
	int			low = 0;
	int			high = FENCE_HISTOGRAM_BOUNDS;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (duration <= bounds[middle])
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/*
 * fence.histogram_bounds() returns interval[]
 *
 * Upper bounds of all buckets but the last.
 */
Datum
fence_histogram_bounds(PG_FUNCTION_ARGS)
{
	Datum		elements[FENCE_HISTOGRAM_BOUNDS];
	int			i;

	for (i = 0; i < FENCE_HISTOGRAM_BOUNDS; i++)
		elements[i] = fence_interval(bounds[i]);
	PG_RETURN_ARRAYTYPE_P(construct_array(elements, FENCE_HISTOGRAM_BOUNDS,
										  INTERVALOID, sizeof(Interval),
										  false, TYPALIGN_DOUBLE));
}

/* A histogram from an argument; returns its sum. */
static double
get_histogram(FunctionCallInfo fcinfo, int n, int64 *counts)
{
	ArrayType  *array;
	Datum	   *elements;
	bool	   *nulls;
	int			count;
	double		total = 0;
	int			i;

	fence_arg_not_null(fcinfo, n, "histogram");
	array = PG_GETARG_ARRAYTYPE_P(n);
	deconstruct_array(array, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
					  TYPALIGN_DOUBLE, &elements, &nulls, &count);
	if (ARR_NDIM(array) != 1 || count != FENCE_HISTOGRAM_BUCKETS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid histogram"),
				 errdetail("A histogram is an array of %d numbers.",
						   FENCE_HISTOGRAM_BUCKETS)));
	for (i = 0; i < FENCE_HISTOGRAM_BUCKETS; i++)
	{
		counts[i] = nulls[i] ? -1 : DatumGetInt64(elements[i]);
		if (counts[i] < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid histogram"),
					 errdetail("Its elements must not be null or negative.")));
		total += counts[i];
	}
	return total;
}

/*
 * fence.histogram_percentile(histogram bigint[], fraction double precision)
 *		returns interval
 *
 * The duration that this fraction (0 to 1) of all does not exceed, evenly
 * spread within a bucket.  In the last bucket, its lower bound.  NULL if the
 * histogram is empty.
 */
Datum
fence_histogram_percentile(PG_FUNCTION_ARGS)
{
	int64		counts[FENCE_HISTOGRAM_BUCKETS];
	double		total = get_histogram(fcinfo, 0, counts);
	double		fraction;
	double		wanted;
	double		below = 0;
	int64		lower;
	int			i = 0;

	fence_arg_not_null(fcinfo, 1, "fraction");
	fraction = PG_GETARG_FLOAT8(1);
	if (!(fraction >= 0 && fraction <= 1))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid fraction: %.15g", fraction),
				 errdetail("It must be between 0 and 1.")));
	if (total == 0)
		PG_RETURN_NULL();

	wanted = fraction * total;
	while (i < FENCE_HISTOGRAM_BUCKETS - 1 &&
		   (counts[i] == 0 || below + counts[i] < wanted))
		below += counts[i++];
	lower = i == 0 ? 0 : bounds[i - 1];
	if (i == FENCE_HISTOGRAM_BUCKETS - 1)
		PG_RETURN_DATUM(fence_interval(lower));
	PG_RETURN_DATUM(fence_interval(lower + (int64)
								   ((bounds[i] - lower) *
									(wanted - below) / counts[i])));
}

/* A bound in its largest unit, like "20 ms". */
static const char *
bound_text(int64 usecs)
{
	if (usecs >= USECS_PER_HOUR)
		return psprintf("%d h", (int) (usecs / USECS_PER_HOUR));
	if (usecs >= USECS_PER_MINUTE)
		return psprintf("%d min", (int) (usecs / USECS_PER_MINUTE));
	if (usecs >= USECS_PER_SEC)
		return psprintf("%d s", (int) (usecs / USECS_PER_SEC));
	if (usecs >= USECS_PER_MS)
		return psprintf("%d ms", (int) (usecs / USECS_PER_MS));
	return psprintf("%d us", (int) usecs);
}

static void
append_bar(StringInfo text, int i, int64 count, int64 most, int width)
{
	bool		last = (i == FENCE_HISTOGRAM_BUCKETS - 1);
	int			length = (int) ceil((double) count / most * width);

	appendStringInfo(text, "%s %6s  ", last ? " >" : "<=",
					 bound_text(bounds[last ? i - 1 : i]));
	while (length-- > 0)
		appendStringInfoChar(text, '#');
	appendStringInfo(text, " %lld\n", (long long) count);
}

/*
 * fence.histogram_text(histogram bigint[], width integer) returns text
 *
 * A bar for each bucket from the first to the last one that is not empty; the
 * longest has width characters (1 to 1000).
 */
Datum
fence_histogram_text(PG_FUNCTION_ARGS)
{
	int64		counts[FENCE_HISTOGRAM_BUCKETS];
	double		total = get_histogram(fcinfo, 0, counts);
	int			width;
	int			first = 0;
	int			last = FENCE_HISTOGRAM_BUCKETS - 1;
	int64		most = 0;
	StringInfoData text;
	int			i;

	fence_arg_not_null(fcinfo, 1, "width");
	width = PG_GETARG_INT32(1);
	if (width < 1 || width > WIDTH_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid width: %d", width),
				 errdetail("It must be between 1 and %d.", WIDTH_MAX)));
	if (total == 0)
		PG_RETURN_TEXT_P(cstring_to_text(""));

	while (counts[first] == 0)
		first++;
	while (counts[last] == 0)
		last--;
	for (i = first; i <= last; i++)
		most = Max(most, counts[i]);
	initStringInfo(&text);
	for (i = first; i <= last; i++)
		append_bar(&text, i, counts[i], most, width);
	text.len--;					/* the last newline */
	PG_RETURN_TEXT_P(cstring_to_text_with_len(text.data, text.len));
}
