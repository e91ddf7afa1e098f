/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Checked arguments of the SQL functions, and the shape of their results.
 *
 * The functions are not STRICT: for a fence, NULL in and NULL out would read
 * as "not refused".  What is refused here raises 22023 and names the value.
 *
 * IDENTIFICATION
 *	  src/args.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "args.h"

/*
 * Raises 25006 in a read-only transaction and on a standby, 25000 in a
 * parallel plan.
 */
void
fence_prevent_read_only(const char *function)
{
	PreventCommandIfReadOnly(function);
	PreventCommandIfParallelMode(function);
	PreventCommandDuringRecovery(function);
}

void
fence_null_error(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s must not be null", what)));
}

void
fence_arg_not_null(FunctionCallInfo fcinfo, int n, const char *what)
{
	if (PG_ARGISNULL(n))
		fence_null_error(what);
}

/*
 * A text of least to limit bytes, as C string.
 */
char *
fence_datum_text(Datum datum, const char *what, int least, int limit)
{
	char	   *value = TextDatumGetCString(datum);
	int			len = strlen(value);

	if (len < least)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", what)));
	if (len > limit)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is too long", what),
				 errdetail("\"%.*s...\" has %d bytes, the limit is %d.",
						   pg_mbcliplen(value, len, 64), value, len, limit)));
	return value;
}

/*
 * A text of 1 to limit bytes, as C string.
 */
char *
fence_arg_text(FunctionCallInfo fcinfo, int n, const char *what, int limit,
			   bool null_allowed)
{
	if (PG_ARGISNULL(n) && null_allowed)
		return NULL;
	fence_arg_not_null(fcinfo, n, what);
	return fence_datum_text(PG_GETARG_DATUM(n), what, 1, limit);
}

FenceName
fence_datum_name(Datum datum, bool isnull)
{
	char	   *value;

	if (isnull)
		fence_null_error("resource name");
	value = fence_datum_text(datum, "resource name", 1, FENCE_RESOURCE_MAX);
	return fence_name(value, strlen(value));
}

FenceName
fence_arg_name(FunctionCallInfo fcinfo, int n)
{
	return fence_datum_name(PG_GETARG_DATUM(n), PG_ARGISNULL(n));
}

int64
fence_arg_token(FunctionCallInfo fcinfo, int n)
{
	int64		token;

	fence_arg_not_null(fcinfo, n, "fencing token");
	token = PG_GETARG_INT64(n);
	if (token < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid fencing token: %lld", (long long) token),
				 errhint("Fencing tokens start at 1.")));
	return token;
}

int32
fence_arg_max_rows(FunctionCallInfo fcinfo, int n)
{
	int32		max_rows;

	fence_arg_not_null(fcinfo, n, "max_rows");
	max_rows = PG_GETARG_INT32(n);
	if (max_rows < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid max_rows: %d", max_rows),
				 errdetail("It must be at least 1.")));
	return max_rows;
}

/*
 * A duration in microseconds, between two bounds in the same unit.  A month
 * counts 30 days, as in justify_days().
 */
int64
fence_arg_duration(FunctionCallInfo fcinfo, int n, const char *what,
				   int64 least, int64 most)
{
	Interval   *interval;
	double		usecs;

	fence_arg_not_null(fcinfo, n, what);
	interval = PG_GETARG_INTERVAL_P(n);

	/* In double, because the sum may exceed 64 bits; exact where it counts. */
	usecs = (double) interval->time +
		(double) interval->day * USECS_PER_DAY +
		(double) interval->month * DAYS_PER_MONTH * USECS_PER_DAY;
	if (usecs < (double) least || usecs > (double) most)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid %s: %s", what,
						DatumGetCString(DirectFunctionCall1(interval_out,
															IntervalPGetDatum(interval)))),
				 most < USECS_PER_DAY ?
				 errdetail("It must be between %g ms and %g s.",
						   least / 1000.0, most / (double) USECS_PER_SEC) :
				 errdetail_plural("It must be between %g ms and %g day.",
								  "It must be between %g ms and %g days.",
								  (unsigned long) (most / USECS_PER_DAY),
								  least / 1000.0,
								  most / (double) USECS_PER_DAY)));
	return (int64) usecs;
}

/*
 * The row that the function returns.
 *
 * A named row type is at hand in the type cache; get_call_result_type() would
 * copy it.
 */
Datum
fence_result_row(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	Oid			type = get_func_rettype(fcinfo->flinfo->fn_oid);
	TupleDesc	desc;
	HeapTuple	tuple;

	if (type != RECORDOID)
		desc = lookup_rowtype_tupdesc(type, -1);
	else if (get_call_result_type(fcinfo, NULL, &desc) == TYPEFUNC_COMPOSITE)
		desc = BlessTupleDesc(desc);
	else
		elog(ERROR, "return type must be a row type");
	tuple = heap_form_tuple(desc, values, nulls);
	ReleaseTupleDesc(desc);
	return HeapTupleGetDatum(tuple);
}
