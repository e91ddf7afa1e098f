/*-------------------------------------------------------------------------
 *
 * verdict.h
 *	  Why a token was refused.
 *
 * IDENTIFICATION
 *	  src/verdict.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_VERDICT_H
#define FENCE_VERDICT_H

#include "access/attnum.h"
#include "resource.h"
#include "utils/relcache.h"

/*
 * A refusal; a null pointer means that nothing speaks against it.  Judges
 * return one instead of raising it, because a guard that only observes makes
 * a warning of it.
 */
typedef struct FenceVerdict
{
	int			sqlstate;
	const char *message;
	const char *detail;
	const char *hint;

	/* what it is about; see fence_verdict_about() */
	FenceName	resource;		/* no data: unknown */
	int64		presented;		/* 0: nothing */
	int64		mark;			/* 0: unknown */
} FenceVerdict;

/* What a refused write was aimed at, for the fields of the report. */
typedef struct FenceSite
{
	Relation	relation;
	AttrNumber	attnum;			/* column, or InvalidAttrNumber */
} FenceSite;

extern FenceVerdict *fence_verdict(int sqlstate, const char *message,
								   const char *detail, const char *hint);
extern FenceVerdict *fence_verdict_about(FenceVerdict *verdict,
										 const FenceName *resource,
										 int64 presented, int64 mark);
extern void fence_verdict_report(int elevel, const FenceVerdict *verdict,
								 const FenceSite *site);
extern void fence_verdict_raise(int elevel, const FenceVerdict *verdict,
								const FenceSite *site);

#endif							/* FENCE_VERDICT_H */
