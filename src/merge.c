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
#include "parser/parsetree.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"
#include "merge.h"

/* The trigger functions of one target relation; dies with the execution. */
typedef struct MergeTarget
{
	MemoryContextCallback callback; /* unlinks this at the end */
	const FmgrInfo *functions;
	int			count;
	const List *actions;		/* of MergeAction */
	struct MergeTarget *next;
} MergeTarget;

static MergeTarget *merge_targets = NULL;

/*
 * The portal that was active when the library was loaded.  Its address may
 * be used again, hence the time.
 */
static Portal loading_portal = NULL;
static TimestampTz loading_time;

static ExecutorStart_hook_type prev_executor_start = NULL;

static bool
plan_is_merge(const Plan *plan)
{
	return plan != NULL && IsA(plan, ModifyTable) &&
		((const ModifyTable *) plan)->operation == CMD_MERGE;
}

/*
 * Does the statement that the client sent write this relation, other than by
 * a MERGE?
 */
static bool
is_plain_write(Relation relation)
{
	PlannedStmt *stmt;
	ListCell   *lc;

	if (ActivePortal->stmts == NIL)
		return false;
	stmt = linitial_node(PlannedStmt, ActivePortal->stmts);
	if (plan_is_merge(stmt->planTree))
		return false;
	foreach(lc, stmt->subplans)
	{
		if (plan_is_merge(lfirst(lc)))
			return false;
	}
	foreach(lc, stmt->resultRelations)
	{
		if (rt_fetch(lfirst_int(lc), stmt->rtable)->relid ==
			RelationGetRelid(relation))
			return true;
	}
	return false;
}

/*
 * The target that the trigger belongs to, NULL if that of no known MERGE.  It
 * is named by its FmgrInfo: each result relation of each execution has its
 * own.
 */
static const MergeTarget *
find_target(const FmgrInfo *trigger)
{
	MergeTarget *target;

	for (target = merge_targets; target != NULL; target = target->next)
	{
		if (trigger >= target->functions &&
			trigger < target->functions + target->count)
			return target;
	}
	return NULL;
}

/*
 * Is the trigger fired by a MERGE, or may it be?
 */
bool
fence_in_merge(const FmgrInfo *trigger, Relation relation)
{
	if (find_target(trigger) != NULL)
		return true;

	/*
	 * The statement that made the library load was started without our hook.
	 * In a function, say, it cannot be told from a MERGE, and then counts as
	 * one.  Preloading the library leaves no such doubt.
	 */
	return loading_portal != NULL && ActivePortal == loading_portal &&
		ActivePortal->creation_time == loading_time &&
		!is_plain_write(relation);
}

/*
 * Of an UPDATE that is said to set the column: is that certain?  In a MERGE,
 * all its UPDATE actions must set it.
 */
bool
fence_sets_column(const FmgrInfo *trigger, Relation relation,
				  AttrNumber attnum)
{
	const MergeTarget *target = find_target(trigger);
	ListCell   *lc;

	if (target == NULL)
		return !fence_in_merge(trigger, relation);
	foreach(lc, target->actions)
	{
		const MergeAction *action = lfirst_node(MergeAction, lc);

		if (action->commandType == CMD_UPDATE &&
			!list_member_int(action->updateColnos, attnum))
			return false;
	}
	return true;
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
		note->actions = fence_merge_actions(modify, i);
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
	if (loading_portal != NULL)
		loading_time = loading_portal->creation_time;
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}
