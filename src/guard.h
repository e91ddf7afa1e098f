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
#include "verdict.h"

/* The trigger that fence.protect() creates for a token column. */
#define FENCE_BEFORE_ROW_NAME	"~fence_before_row"

/* A refusal that is still to be reported; no verdict: there is none. */
typedef struct FenceRefusal
{
	const FenceVerdict *verdict;
	FenceSite	site;
} FenceRefusal;

extern Datum fence_guard(PG_FUNCTION_ARGS);
extern HeapTuple fence_guard_update(TriggerData *trigdata, FmgrInfo *flinfo,
									FenceRefusal *refusal);
extern void fence_guard_init(void);

#endif							/* FENCE_GUARD_H */
