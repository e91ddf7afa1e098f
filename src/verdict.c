/*-------------------------------------------------------------------------
 *
 * verdict.c
 *	  Why a token was refused.
 *
 * IDENTIFICATION
 *	  src/verdict.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/rel.h"

#include "rejection.h"
#include "verdict.h"

/*
 * Makes a verdict in the current memory context; the texts stay the
 * caller's.
 */
FenceVerdict *
fence_verdict(int sqlstate, const char *message, const char *detail,
			  const char *hint)
{
	FenceVerdict *verdict = palloc0(sizeof(FenceVerdict));

	verdict->sqlstate = sqlstate;
	verdict->message = message;
	verdict->detail = detail;
	verdict->hint = hint;
	return verdict;
}

/*
 * The same in numbers, for the record of rejections: the resource, the token
 * that was presented, and the mark that it was judged against.  The name
 * stays the caller's.
 */
FenceVerdict *
fence_verdict_about(FenceVerdict *verdict, const FenceName *resource,
					int64 presented, int64 mark)
{
	verdict->resource = *resource;
	verdict->presented = presented;
	verdict->mark = mark;
	return verdict;
}

/* Adds table, column and schema to a report. */
static int
site_fields(const FenceSite *site)
{
	if (site == NULL)
		return 0;
	if (site->attnum != InvalidAttrNumber)
		return errtablecol(site->relation, site->attnum);
	return errtable(site->relation);
}

static void
report(int elevel, const FenceVerdict *verdict, const FenceSite *site)
{
	ereport(elevel,
			(errcode(verdict->sqlstate),
			 errmsg_internal("%s", verdict->message),
			 errdetail_internal("%s", verdict->detail),
			 errhint("%s", verdict->hint),
			 site_fields(site)));
}

/*
 * Raises a verdict, or reports it as a warning.  The site may be NULL.  Either
 * way it goes to the record, which outlives the transaction.
 */
void
fence_verdict_report(int elevel, const FenceVerdict *verdict,
					 const FenceSite *site)
{
	fence_rejection(verdict, site, elevel < ERROR);
	report(elevel, verdict, site);
}

/*
 * The same, if there is a verdict, for what is neither a token nor a write:
 * the record of these is not for it.
 */
void
fence_verdict_raise(int elevel, const FenceVerdict *verdict,
					const FenceSite *site)
{
	if (verdict != NULL)
		report(elevel, verdict, site);
}
