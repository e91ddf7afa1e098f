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
#include "utils/uuid.h"

typedef struct FenceExecution
{
	MemoryContextCallback callback; /* forgets this at the end */
	MemoryContext cxt;			/* of the execution */
	struct FenceExecution *next;

	bool		reported;		/* has something been reported about it? */

	/* The key that was claimed or found to be claimed last, see guard_key.c. */
	bool		has_key;
	const char *scope;
	StringInfoData key;
	pg_uuid_t	id;

	bool		inserting;		/* the last row is about to be inserted */
	bool		moving;			/* ... has left its partition */
	bool		moved_null;		/* the last row's key as it was updated */
	StringInfoData moved_key;
} FenceExecution;

extern FenceExecution *fence_execution(const FmgrInfo *flinfo);

#endif							/* FENCE_EXECUTION_H */
