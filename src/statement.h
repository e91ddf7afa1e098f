/*-------------------------------------------------------------------------
 *
 * statement.h
 *	  Which statement is it that calls a function?
 *
 * IDENTIFICATION
 *	  src/statement.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_STATEMENT_H
#define FENCE_STATEMENT_H

#include "fmgr.h"
#include "utils/portal.h"

/* One execution of one statement; valid in its transaction. */
typedef struct FenceStatement
{
	CommandId	cid;			/* of its snapshot */
	Portal		portal;
	MemoryContext execution;	/* of the executor; only an address */
	const void *expression;		/* the call in the plan, NULL in a trigger */
} FenceStatement;

extern FenceStatement fence_statement(const FmgrInfo *flinfo);
extern bool fence_same_statement(const FenceStatement *a,
								 const FenceStatement *b);

#endif							/* FENCE_STATEMENT_H */
