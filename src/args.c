/*-------------------------------------------------------------------------
 *
 * args.c
 *	  Checked arguments of the SQL functions.
 *
 * The functions are not STRICT: for a fence, NULL in and NULL out would read
 * as "not refused".  Everything here raises 22023 and names the value.
 *
 * IDENTIFICATION
 *	  src/args.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xact.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

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

static void
null_error(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s must not be null", what)));
}

/*
 * A text of 1 to limit bytes, as C string.
 */
char *
fence_arg_text(FunctionCallInfo fcinfo, int n, const char *what, int limit,
			   bool null_allowed)
{
	char	   *value;
	int			len;

	if (PG_ARGISNULL(n))
	{
		if (!null_allowed)
			null_error(what);
		return NULL;
	}
	value = text_to_cstring(PG_GETARG_TEXT_PP(n));
	len = strlen(value);
	if (len == 0)
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

FenceName
fence_arg_name(FunctionCallInfo fcinfo, int n)
{
	char	   *value = fence_arg_text(fcinfo, n, "resource name",
									   FENCE_RESOURCE_MAX, false);

	return fence_name(value, strlen(value));
}

int64
fence_arg_token(FunctionCallInfo fcinfo, int n)
{
	int64		token;

	if (PG_ARGISNULL(n))
		null_error("fencing token");
	token = PG_GETARG_INT64(n);
	if (token < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid fencing token: %lld", (long long) token),
				 errhint("Fencing tokens start at 1.")));
	return token;
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

	if (PG_ARGISNULL(n))
		null_error(what);
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
				 errdetail("It must be between %g ms and %g s.",
						   least / 1000.0, most / (double) USECS_PER_SEC)));
	return (int64) usecs;
}
