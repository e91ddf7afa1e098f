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

#include "verdict.h"

/*
 * Makes a verdict in the current memory context; the texts stay the
 * caller's.
 */
const FenceVerdict *
fence_verdict(int sqlstate, const char *message, const char *detail,
			  const char *hint)
{
	FenceVerdict *verdict = palloc(sizeof(FenceVerdict));

	verdict->sqlstate = sqlstate;
	verdict->message = message;
	verdict->detail = detail;
	verdict->hint = hint;
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

/*
 * Raises a verdict, or reports it as a warning.  The site may be NULL.
 */
void
fence_verdict_report(int elevel, const FenceVerdict *verdict,
					 const FenceSite *site)
{
	ereport(elevel,
			(errcode(verdict->sqlstate),
			 errmsg_internal("%s", verdict->message),
			 errdetail_internal("%s", verdict->detail),
			 errhint("%s", verdict->hint),
			 site_fields(site)));
}
