/*-------------------------------------------------------------------------
 *
 * merge.c
 *	  Is a trigger fired by a MERGE?
 *
 * The columns that a trigger is told to be updated are, in a MERGE, those of
 * all its actions together: whether this row's action sets a column cannot
 * be seen.  Nor can a trigger see that it is fired by a MERGE.  So the
 * executions of MERGE are noted when they start.
 *
 * IDENTIFICATION
 *	  src/merge.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"

#include "merge.h"

/* The trigger functions of one target relation; dies with the execution. */
typedef struct MergeTarget
{
	MemoryContextCallback callback; /* unlinks this at the end */
	const FmgrInfo *functions;
	int			count;
	struct MergeTarget *next;
} MergeTarget;

static MergeTarget *merge_targets = NULL;

/* The portal that was active when the library was loaded. */
static Portal loading_portal = NULL;

static ExecutorStart_hook_type prev_executor_start = NULL;

/*
 * The trigger is named by its FmgrInfo: each result relation of each
 * execution has its own.
 */
bool
fence_in_merge(const FmgrInfo *trigger)
{
	MergeTarget *target;

	for (target = merge_targets; target != NULL; target = target->next)
	{
		if (trigger >= target->functions &&
			trigger < target->functions + target->count)
			return true;
	}

	/*
	 * The statement that made the library load was started without our hook.
	 * A MERGE inside a function that is the very first contact of a session
	 * goes unnoticed; preloading the library leaves no such gap.
	 */
	return loading_portal != NULL && ActivePortal == loading_portal &&
		ActivePortal->commandTag == CMDTAG_MERGE;
}

static void
forget_merge(void *arg)
{
	MergeTarget **link = &merge_targets;

	while (*link != arg)
		link = &(*link)->next;
	*link = (*link)->next;
}

/*
 * Notes the target relations of a MERGE, for as long as the execution lives.
 */
static void
note_merge(EState *estate, PlanState *planstate)
{
	ModifyTableState *modify = (ModifyTableState *) planstate;
	int			i;

	if (planstate == NULL || !IsA(planstate, ModifyTableState) ||
		modify->operation != CMD_MERGE)
		return;
	for (i = 0; i < modify->mt_nrels; i++)
	{
		ResultRelInfo *target = &modify->resultRelInfo[i];
		MergeTarget *note;

		if (target->ri_TrigDesc == NULL)
			continue;
		note = MemoryContextAlloc(estate->es_query_cxt, sizeof(MergeTarget));
		note->functions = target->ri_TrigFunctions;
		note->count = target->ri_TrigDesc->numtriggers;
		note->next = merge_targets;
		note->callback.func = forget_merge;
		note->callback.arg = note;
		merge_targets = note;
		MemoryContextRegisterResetCallback(estate->es_query_cxt,
										   &note->callback);
	}
}

static void
executor_start(QueryDesc *queryDesc, int eflags)
{
	ListCell   *lc;

	/* The portal may be gone, and its address be used again. */
	if (ActivePortal != loading_portal)
		loading_portal = NULL;

	if (prev_executor_start)
		prev_executor_start(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);

	if (queryDesc->operation != CMD_MERGE &&
		!queryDesc->plannedstmt->hasModifyingCTE)
		return;
	note_merge(queryDesc->estate, queryDesc->planstate);
	foreach(lc, queryDesc->estate->es_subplanstates)
		note_merge(queryDesc->estate, (PlanState *) lfirst(lc));
}

/*
 * Once per backend.
 */
void
fence_merge_init(void)
{
	loading_portal = ActivePortal;
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}
