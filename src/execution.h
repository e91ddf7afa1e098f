/*-------------------------------------------------------------------------
 *
 * execution.h
 *	  What guards remember about one execution of a statement.
 *
 * IDENTIFICATION
 *	  src/execution.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_EXECUTION_H
#define FENCE_EXECUTION_H

#include "fmgr.h"
#include "lib/stringinfo.h"

typedef struct FenceExecution
{
	MemoryContextCallback callback; /* forgets this at the end */
	MemoryContext cxt;			/* of the execution */
	struct FenceExecution *next;

	bool		reported;		/* has something been reported about it? */

	/* by guard_key.c, about the last row */
	bool		inserting;		/* it is about to be inserted */
	StringInfoData inserted_key;
	bool		moving;			/* it has left its partition */
	bool		moved_null;		/* the key that it takes along */
	StringInfoData moved_key;
} FenceExecution;

extern FenceExecution *fence_execution(const FmgrInfo *flinfo);

#endif							/* FENCE_EXECUTION_H */
