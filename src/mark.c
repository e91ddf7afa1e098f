/*-------------------------------------------------------------------------
 *
 * mark.c
 *	  SQL functions that read and raise a high-water mark by hand.
 *
 * IDENTIFICATION
 *	  src/mark.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "args.h"
#include "present.h"
#include "resource.h"

PG_FUNCTION_INFO_V1(fence_mark);
PG_FUNCTION_INFO_V1(fence_raise_mark);

/*
 * fence.mark(resource text) returns bigint
 *
 * The highest token accepted and committed so far (or in this transaction),
 * NULL if the resource is not known.  Works on a standby too.
 */
Datum
fence_mark(PG_FUNCTION_ARGS)
{
	FenceName	name = fence_arg_name(fcinfo, 0);
	FenceRow	row;

	fence_row_read(&name, &row);
	if (!row.found)
		PG_RETURN_NULL();
	PG_RETURN_INT64(row.mark);
}

/*
 * fence.raise_mark(resource text, token bigint) returns bigint
 *
 * For an operator whose source of tokens was reset, or who wants to shut out
 * a holder.  Returns the mark in force.  Nothing lowers a mark.
 */
Datum
fence_raise_mark(PG_FUNCTION_ARGS)
{
	FenceName	name;
	int64		token;
	int64		before;

	fence_prevent_read_only("fence.raise_mark()");
	name = fence_arg_name(fcinfo, 0);
	token = fence_arg_token(fcinfo, 1);

	before = fence_raise(&name, token);
	if (token < before)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot lower the mark of resource \"%.*s\" to %lld",
						name.len, name.data, (long long) token),
				 errdetail("The high-water mark is %lld.",
						   (long long) before)));
	if (token > before)
		ereport(LOG,
				(errmsg("mark of resource \"%.*s\" raised from %lld to %lld by \"%s\"",
						name.len, name.data, (long long) before,
						(long long) token,
						GetUserNameFromId(GetUserId(), false))));
	PG_RETURN_INT64(token);
}
