/*-------------------------------------------------------------------------
 *
 * execution.c
 *	  What guards remember about one execution of a statement.
 *
 * The executor gives each trigger of each relation a place of its own to
 * remember things; this is for what concerns the statement as a whole, with
 * all its triggers, rows and partitions.  They share a memory context, which
 * this dies with, also if the statement fails.
 *
 * IDENTIFICATION
 *	  src/execution.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "execution.h"

/* Those going on, the innermost first (backend). */
static FenceExecution *executions = NULL;

static void
forget_execution(void *arg)
{
	FenceExecution **link = &executions;

	while (*link != arg)
		link = &(*link)->next;
	*link = (*link)->next;
}

/*
 * The execution that the trigger function is called in.
 */
FenceExecution *
fence_execution(const FmgrInfo *flinfo)
{
	MemoryContext cxt = flinfo->fn_mcxt;
	MemoryContext oldcxt;
	FenceExecution *execution;

	for (execution = executions; execution != NULL;
		 execution = execution->next)
	{
		if (execution->cxt == cxt)
			return execution;
	}

	oldcxt = MemoryContextSwitchTo(cxt);
	execution = palloc0(sizeof(FenceExecution));
	execution->cxt = cxt;
	initStringInfo(&execution->inserted_key);
	initStringInfo(&execution->moved_key);
	MemoryContextSwitchTo(oldcxt);

	execution->next = executions;
	executions = execution;
	execution->callback.func = forget_execution;
	execution->callback.arg = execution;
	MemoryContextRegisterResetCallback(cxt, &execution->callback);
	return execution;
}
