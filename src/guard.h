/*-------------------------------------------------------------------------
 *
 * guard.h
 *	  The trigger function on protected tables.
 *
 * IDENTIFICATION
 *	  src/guard.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_GUARD_H
#define FENCE_GUARD_H

#include "access/htup.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "policy.h"
#include "verdict.h"

/* Triggers that fence.protect() creates: for a token column, and without. */
#define FENCE_BEFORE_ROW_NAME	"~fence_before_row"
#define FENCE_AFTER_ROW_NAME	"~fence_after_row"

/* An update that is judged without the trigger. */
typedef struct FenceUpdate
{
	TriggerData *trigdata;		/* what the trigger would have got */
	FmgrInfo   *flinfo;
	const FencePolicy *policy;
	bool		sets_token;		/* the statement sets the token column */
	bool		sets_resource;	/* and columns that name the resource */
	bool		(*lock) (void *arg);	/* locks the row, false: it has changed */
	void	   *arg;

	/* the result, unless it has changed */
	bool		changed;
	bool		bypassed;		/* has not been judged */
	HeapTuple	tuple;			/* to go on with */
	const FenceVerdict *verdict;	/* to be reported, or NULL */
	FenceSite	site;
} FenceUpdate;

extern Datum fence_guard(PG_FUNCTION_ARGS);
extern void fence_guard_update(FenceUpdate *update);
extern bool fence_guard_passes(const FenceUpdate *update);
extern void fence_guard_init(void);

#endif							/* FENCE_GUARD_H */
