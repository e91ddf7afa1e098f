/*-------------------------------------------------------------------------
 *
 * fast_update.c
 *	  A cheaper way to call the guard of a table that is updated.
 *
 * A BEFORE ROW UPDATE trigger costs more than what it does: before it fires,
 * the executor locks the row, which writes WAL, and after it the row is
 * updated, which writes it again.  The AFTER ROW trigger is queued for each
 * row.  So where the guard's triggers are alone, they are taken out of the
 * executor's copy of the trigger descriptor, and the guard is called as one
 * of the checks that the executor makes on a new row just before it is
 * written (a WITH CHECK OPTION).
 *
 * The triggers are always there, and whatever is unusual keeps them: MERGE,
 * ON CONFLICT, other BEFORE ROW triggers, rows that move to other partitions,
 * an EXPLAIN that is to name them.  The guard is the same function in both
 * cases.  What differs, and has to be made up for, is that the row is not
 * locked yet:
 *
 *	- if somebody else has changed it, it is the new version that counts.  The
 *	  executor finds that out when it writes, and then calls us again with
 *	  that one.  So a row that passes needs no more; but before one is refused,
 *	  or a token is presented for it, it is locked, as it would have been for
 *	  the trigger.
 *	- if this very statement has changed it already, it is not written a second
 *	  time, and not judged a second time either.
 *
 * AFTER ROW judges again what other triggers may have changed meanwhile, and
 * rows that come to a resource.  Here there are no such triggers, and an UPDATE
 * that may do the latter is unusual.
 *
 * IDENTIFICATION
 *	  src/fast_update.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "nodes/makefuncs.h"
#include "utils/guc.h"
#include "utils/rel.h"

#include "attempt.h"
#include "fast_update.h"
#include "guard.h"
#include "policy.h"

/* The guard of one table in one execution. */
typedef struct FastGuard
{
	EState	   *estate;
	ResultRelInfo *target;
	Trigger		trigger;		/* BEFORE ROW, as it was in the descriptor */
	TriggerData trigdata;		/* what it would have been called with */
	FmgrInfo	function;
	FenceUpdate update;
	TupleTableSlot *locked;		/* for a look at the row */
} FastGuard;

/* pg_fence.fast_update: off, and the triggers are left in place. */
static bool fast_update = true;

static ExecutorStart_hook_type previous_hook = NULL;

/* As the executor decides for a trigger without WHEN and columns. */
static bool
fires(const Trigger *trigger)
{
	if (SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA)
		return trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA ||
			trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
	return trigger->tgenabled == TRIGGER_FIRES_ON_ORIGIN ||
		trigger->tgenabled == TRIGGER_FIRES_ALWAYS;
}

/* Has this transaction changed the version in the slot already? */
static bool
is_written(HeapTuple tuple)
{
	HeapTupleHeader header = tuple->t_data;

	return (header->t_infomask & HEAP_XMAX_INVALID) == 0 &&
		!HEAP_XMAX_IS_LOCKED_ONLY(header->t_infomask) &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetUpdateXid(header));
}

/*
 * Waits for whoever is changing the row, and locks it.  False if it is not
 * the latest version any more.
 */
static bool
lock_row(void *arg)
{
	FastGuard  *guard = arg;
	EState	   *estate = guard->estate;
	MemoryContext oldcxt;
	TM_FailureData failure;

	if (guard->locked == NULL)
	{
		oldcxt = MemoryContextSwitchTo(estate->es_query_cxt);
		guard->locked = table_slot_create(guard->target->ri_RelationDesc,
										  &estate->es_tupleTable);
		MemoryContextSwitchTo(oldcxt);
	}
	return table_tuple_lock(guard->target->ri_RelationDesc,
							&guard->target->ri_oldTupleSlot->tts_tid,
							estate->es_snapshot, guard->locked,
							estate->es_output_cid,
							ExecUpdateLockMode(estate, guard->target),
							LockWaitBlock, 0, &failure) == TM_Ok;
}

/*
 * Called for each row that is about to be written.  Always true: what is
 * refused is raised.
 */
static Datum
judge_row(ExprState *state, ExprContext *context, bool *isnull)
{
	FastGuard  *guard = state->evalfunc_private;
	TriggerData *trigdata = &guard->trigdata;
	FenceUpdate *update = &guard->update;
	TupleTableSlot *old = guard->target->ri_oldTupleSlot;
	TupleTableSlot *new = context->ecxt_scantuple;
	bool		should_free;

	*isnull = false;
	trigdata->tg_trigslot = old;
	trigdata->tg_newslot = new;
	trigdata->tg_trigtuple = ExecFetchSlotHeapTuple(old, false, &should_free);
	trigdata->tg_newtuple = ExecFetchSlotHeapTuple(new, true, &should_free);
	if (!fires(&guard->trigger) || is_written(trigdata->tg_trigtuple))
		return BoolGetDatum(true);

	fence_guard_update(update);
	if (update->changed)
		return BoolGetDatum(true);
	if (update->verdict != NULL && lock_row(guard))
		fence_verdict_report(ERROR, update->verdict, &update->site);
	if (update->tuple != trigdata->tg_newtuple)
		ExecForceStoreHeapTuple(update->tuple, new, false);
	return BoolGetDatum(true);
}

typedef struct PolicyRequest
{
	Relation	relation;
	const Trigger *trigger;
	const FencePolicy *policy;
} PolicyRequest;

static bool
request_policy(void *arg)
{
	PolicyRequest *request = arg;

	request->policy = fence_policy_of_trigger(request->relation,
											  request->trigger);
	return true;
}

/*
 * The policy of the trigger, NULL if its arguments cannot be read: then it
 * will say so itself, for the first row.
 */
static const FencePolicy *
find_policy(Relation relation, const Trigger *trigger)
{
	PolicyRequest request = {relation, trigger, NULL};
	ErrorData  *error;

	if (fence_policy_is_cached(relation, trigger))
		(void) request_policy(&request);
	else
		(void) fence_attempt(request_policy, &request,
							 ERRCODE_INVALID_PARAMETER_VALUE, &error);
	return request.policy;
}

/* The policies that BEFORE ROW settles for good. */
static bool
is_usual_policy(const FencePolicy *policy, const Bitmapset *updated)
{
	int			i;

	if (policy == NULL || policy->problem != NULL || policy->observe ||
		policy->token_column == NULL || policy->key_column != NULL)
		return false;
	/* A row that comes to a resource is looked at again when it is there. */
	for (i = 0; i < policy->nparts; i++)
	{
		if (policy->parts[i].is_column &&
			bms_is_member(policy->columns[i].attnum -
						  FirstLowInvalidHeapAttributeNumber, updated))
			return false;
	}
	return true;
}

/* Tables on which a row stays where it is and is what the executor has made. */
static bool
is_usual_target(const ModifyTableState *modify, const ResultRelInfo *target)
{
	const ModifyTable *plan = (const ModifyTable *) modify->ps.plan;
	Relation	relation = target->ri_RelationDesc;
	const TupleConstr *constraints = RelationGetDescr(relation)->constr;

	if (relation->rd_rel->relkind != RELKIND_RELATION ||
		plan->partColsUpdated)
		return false;
	/* here a row that fits no more would be an error, but a later one */
	if (relation->rd_rel->relispartition && modify->rootResultRelInfo == target)
		return false;
	return constraints == NULL || !constraints->has_generated_stored;
}

static bool
is_row_update(const Trigger *trigger)
{
	return TRIGGER_FOR_ROW(trigger->tgtype) &&
		TRIGGER_FOR_UPDATE(trigger->tgtype);
}

static bool
is_before(const Trigger *trigger)
{
	return is_row_update(trigger) && TRIGGER_FOR_BEFORE(trigger->tgtype);
}

/* Do both come from one call of fence.protect()? */
static bool
are_siblings(const Trigger *a, const Trigger *b)
{
	int			i;

	if (a->tgfoid != b->tgfoid || a->tgenabled != b->tgenabled ||
		a->tgnargs != b->tgnargs)
		return false;
	for (i = 0; i < a->tgnargs; i++)
	{
		if (strcmp(a->tgargs[i], b->tgargs[i]) != 0)
			return false;
	}
	return true;
}

/*
 * The guard's BEFORE ROW trigger, if there is no other one for UPDATE; its
 * function goes to *function.
 */
static Trigger *
find_guard(const TriggerDesc *triggers, FmgrInfo *function)
{
	Trigger    *found = NULL;
	int			i;

	if (triggers == NULL || !triggers->trig_update_before_row)
		return NULL;
	for (i = 0; i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (!is_before(trigger))
			continue;
		if (found != NULL)
			return NULL;
		found = trigger;
	}
	if (found == NULL || found->tgnattr > 0 || found->tgqual != NULL ||
		strcmp(found->tgname, FENCE_BEFORE_ROW_NAME) != 0)
		return NULL;
	fmgr_info(found->tgfoid, function);
	return function->fn_addr == fence_guard ? found : NULL;
}

/*
 * Takes the guard's row triggers out of the executor's own copy of the
 * descriptor.
 */
static void
remove_triggers(TriggerDesc *triggers, const Trigger *guard)
{
	Trigger		sample = *guard;
	int			kept = 0;
	int			i;

	triggers->trig_update_before_row = false;
	triggers->trig_update_after_row = false;
	for (i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (is_row_update(trigger) && are_siblings(trigger, &sample))
			continue;
		if (is_row_update(trigger) && TRIGGER_FOR_AFTER(trigger->tgtype))
			triggers->trig_update_after_row = true;
		triggers->triggers[kept++] = *trigger;
	}
	triggers->numtriggers = kept;
}

/*
 * Puts the check in front of those that the target has: a trigger, too, would
 * have fired before them.
 */
static void
add_check(ResultRelInfo *target, FastGuard *guard)
{
	WithCheckOption *option = makeNode(WithCheckOption);
	ExprState  *state = makeNode(ExprState);

	option->kind = WCO_RLS_UPDATE_CHECK;
	option->relname = RelationGetRelationName(target->ri_RelationDesc);
	state->flags = EEO_FLAG_IS_QUAL;
	state->evalfunc = judge_row;
	state->evalfunc_private = guard;
	target->ri_WithCheckOptions =
		lcons(option, list_copy(target->ri_WithCheckOptions));
	target->ri_WithCheckOptionExprs =
		lcons(state, list_copy(target->ri_WithCheckOptionExprs));
}

static void
speed_up(EState *estate, const ModifyTableState *modify, ResultRelInfo *target)
{
	Relation	relation = target->ri_RelationDesc;
	FastGuard  *guard;
	FmgrInfo	function;
	Trigger    *trigger = find_guard(target->ri_TrigDesc, &function);
	Bitmapset  *updated;

	if (trigger == NULL || !is_usual_target(modify, target))
		return;
	/* what it returns lives as long as a row */
	updated = bms_copy(ExecGetAllUpdatedCols(target, estate));
	if (!is_usual_policy(find_policy(relation, trigger), updated))
		return;

	guard = palloc0(sizeof(FastGuard));
	guard->estate = estate;
	guard->target = target;
	guard->trigger = *trigger;
	guard->function = function;
	guard->trigdata.type = T_TriggerData;
	guard->trigdata.tg_event = TRIGGER_EVENT_UPDATE | TRIGGER_EVENT_ROW |
		TRIGGER_EVENT_BEFORE;
	guard->trigdata.tg_relation = relation;
	guard->trigdata.tg_trigger = &guard->trigger;
	guard->trigdata.tg_updatedcols = updated;
	guard->update.trigdata = &guard->trigdata;
	guard->update.flinfo = &guard->function;
	guard->update.lock = lock_row;
	guard->update.arg = guard;
	add_check(target, guard);
	remove_triggers(target->ri_TrigDesc, trigger);
}

static void
speed_up_node(EState *estate, PlanState *node)
{
	ModifyTableState *modify = (ModifyTableState *) node;
	int			i;

	if (!IsA(node, ModifyTableState) || modify->operation != CMD_UPDATE)
		return;
	for (i = 0; i < modify->mt_nrels; i++)
		speed_up(estate, modify, &modify->resultRelInfo[i]);
}

/*
 * An EXPLAIN (ANALYZE) is to tell what time the triggers take, so there they
 * stay.
 */
static void
start_hook(QueryDesc *query, int eflags)
{
	EState	   *estate;
	MemoryContext oldcxt;
	ListCell   *lc;

	if (previous_hook)
		previous_hook(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	if (!fast_update || query->planstate == NULL ||
		query->instrument_options != 0 ||
		(eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;

	estate = query->estate;
	oldcxt = MemoryContextSwitchTo(estate->es_query_cxt);
	speed_up_node(estate, query->planstate);
	foreach(lc, estate->es_auxmodifytables)
		speed_up_node(estate, lfirst(lc));
	MemoryContextSwitchTo(oldcxt);
}

/*
 * Once per backend.
 */
void
fence_fast_update_init(void)
{
	DefineCustomBoolVariable("pg_fence.fast_update",
							 "Judges updated rows without the guard's triggers, where those are alone.",
							 "The verdicts are the same.",
							 &fast_update, true, PGC_SUSET, 0,
							 NULL, NULL, NULL);
	previous_hook = ExecutorStart_hook;
	ExecutorStart_hook = start_hook;
}
