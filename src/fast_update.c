/*-------------------------------------------------------------------------
 *
 * fast_update.c
 *	  A cheaper way to call the guard of a table that is updated.
 *
 * A BEFORE ROW UPDATE trigger costs more than what it does: before it fires,
 * the executor locks the row, which writes WAL, and after it the row is
 * updated, which writes it again.  The AFTER ROW trigger is queued for each
 * row.  So where the guard's triggers are alone, they are muted in the
 * executor's copy of the trigger descriptor, and the guard is called as one
 * of the checks that the executor makes on a new row just before it is
 * written (a WITH CHECK OPTION).
 *
 * The triggers are always there, and whatever is unusual keeps them: MERGE,
 * ON CONFLICT, other BEFORE ROW triggers, row security, rows that may move to
 * another partition, an EXPLAIN that is to name them.  The guard is the same
 * function in both cases.
 *
 * With a token column, what differs, and has to be made up for, is that the
 * row is not locked yet:
 *
 *	- If somebody is changing it, it is the new version that counts, also for
 *	  the constraints, and the order of waiting and judging.  So then it is
 *	  locked first, as it would have been for the trigger.
 *	- If somebody changes it after that, the executor finds out when it
 *	  writes, and calls us again with the new version.  So a row that passes
 *	  needs no more; but before one is refused, or a token is presented for
 *	  it, it is locked.
 *	- If this very statement has changed it already, it is not written a second
 *	  time, and not judged a second time either.
 *
 * AFTER ROW judges again what other triggers may have changed meanwhile, and
 * rows that come to a resource.  Here there are no such triggers, and an
 * UPDATE that may do the latter is unusual.
 *
 * Without a token column, nothing depends on the row but the names of its
 * resources, and what is presented for them cannot be lost before the trigger
 * would have asked.  Nothing is refused early: it may be presented later in
 * the statement.  So with the first row that does not pass, the trigger is
 * back, to judge that one and those after it.
 *
 * IDENTIFICATION
 *	  src/fast_update.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "optimizer/optimizer.h"
#include "replication/logicalworker.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "attempt.h"
#include "fast_update.h"
#include "guard.h"
#include "policy.h"

/* The guard of one table in one execution. */
typedef struct FastGuard
{
	EState	   *estate;
	ResultRelInfo *target;
	Trigger		trigger;		/* as it was in the descriptor */
	TriggerData trigdata;		/* what it would have been called with */
	FmgrInfo	function;		/* only for what the guard keeps there */
	FenceUpdate update;
	WithCheckOption option;
	ExprState	check;
	TupleTableSlot *locked;		/* for a look at the row */
	bool		unmuted;		/* the trigger is back, for all that follows */
} FastGuard;

/* pg_fence.fast_update: off, and the triggers are left in place. */
static bool fast_update = true;

static ExecutorStart_hook_type previous_hook = NULL;

/* A function that is the guard and nothing else; 0 is unknown (backend). */
static Oid	guard_function = InvalidOid;

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

/* The tuple in a slot of a heap. */
static HeapTuple
heap_tuple(TupleTableSlot *slot)
{
	Assert(TTS_IS_BUFFERTUPLE(slot));
	return ((HeapTupleTableSlot *) slot)->tuple;
}

/*
 * Is somebody changing the row in the slot, or has this transaction changed
 * it?  The page is not locked, so nothing but these bits may be looked at; to
 * be told of a change a moment later is as good.
 */
static bool
may_be_changed(TupleTableSlot *old)
{
	uint16		infomask = heap_tuple(old)->t_data->t_infomask;

	return (infomask & HEAP_XMAX_INVALID) == 0 &&
		!HEAP_XMAX_IS_LOCKED_ONLY(infomask);
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
	Relation	relation = guard->target->ri_RelationDesc;
	MemoryContext oldcxt;
	TM_FailureData failure;
	TM_Result	result;

	if (guard->locked == NULL)
	{
		oldcxt = MemoryContextSwitchTo(estate->es_query_cxt);
		guard->locked = table_slot_create(relation, &estate->es_tupleTable);
		MemoryContextSwitchTo(oldcxt);
	}
	result = table_tuple_lock(relation,
							  &guard->target->ri_oldTupleSlot->tts_tid,
							  estate->es_snapshot, guard->locked,
							  estate->es_output_cid,
							  ExecUpdateLockMode(estate, guard->target),
							  LockWaitBlock, 0, &failure);
	ExecClearTuple(guard->locked);
	return result == TM_Ok;
}

/*
 * Lets the triggers fire again.  A row that passed because of the bypass is
 * judged by AFTER ROW, if that has ended by then.
 */
static void
unmute(const ResultRelInfo *target)
{
	TriggerDesc *triggers = target->ri_TrigDesc;
	const TriggerDesc *originals = target->ri_RelationDesc->trigdesc;
	int			i;
	int			j;

	for (i = 0; i < triggers->numtriggers; i++)
	{
		for (j = 0; j < originals->numtriggers; j++)
		{
			if (originals->triggers[j].tgoid == triggers->triggers[i].tgoid)
				triggers->triggers[i].tgtype = originals->triggers[j].tgtype;
		}
	}
	triggers->trig_update_after_row = true;
}

/*
 * Judges the new row; false if it is not to be written, because the old one
 * is not the latest version.
 */
static bool
judge(FastGuard *guard, TupleTableSlot *old, TupleTableSlot *new)
{
	TriggerData *trigdata = &guard->trigdata;
	FenceUpdate *update = &guard->update;

	if (may_be_changed(old) && !lock_row(guard))
		return false;
	trigdata->tg_trigslot = old;
	trigdata->tg_newslot = new;
	trigdata->tg_newtuple = heap_tuple(new);
	fence_guard_update(update);
	if (update->bypassed)
		unmute(guard->target);
	if (update->changed || (update->verdict != NULL && !lock_row(guard)))
		return false;
	if (update->verdict != NULL)
		fence_verdict_report(ERROR, update->verdict, &update->site);
	if (update->tuple != trigdata->tg_newtuple)
		ExecForceStoreHeapTuple(update->tuple, new, false);
	return true;
}

/*
 * Called for each row that is about to be written.  Always true: what is
 * refused is raised.
 */
static Datum
judge_row(ExprState *state, ExprContext *context, bool *isnull)
{
	FastGuard  *guard = state->evalfunc_private;
	ResultRelInfo *target = guard->target;
	TupleTableSlot *old = target->ri_oldTupleSlot;
	TupleTableSlot *new = context->ecxt_scantuple;

	*isnull = false;

	/*
	 * Another slot holds a row that comes from another partition.  It is an
	 * INSERT here, and its triggers have judged it.
	 */
	if (new == target->ri_newTupleSlot && fires(&guard->trigger) &&
		!judge(guard, old, new))
	{
		/*
		 * The executor is going to find out that it must not write the row,
		 * but looks at constraints before.  The old row satisfies them.
		 */
		ExecCopySlot(new, old);
	}
	return BoolGetDatum(true);
}

/*
 * The same without a token column.
 */
static Datum
judge_resource(ExprState *state, ExprContext *context, bool *isnull)
{
	FastGuard  *guard = state->evalfunc_private;
	ResultRelInfo *target = guard->target;

	*isnull = false;
	if (guard->unmuted || context->ecxt_scantuple != target->ri_newTupleSlot)
		return BoolGetDatum(true);
	guard->trigdata.tg_trigslot = target->ri_oldTupleSlot;
	guard->trigdata.tg_newslot = target->ri_newTupleSlot;
	if (!fires(&guard->trigger) || !fence_guard_passes(&guard->update))
	{
		unmute(target);
		guard->unmuted = true;
	}
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

	request.policy = fence_policy_cached(relation, trigger);
	if (request.policy == NULL)
		(void) fence_attempt(request_policy, &request,
							 ERRCODE_INVALID_PARAMETER_VALUE, &error);
	return request.policy;
}

static bool
is_updated(AttrNumber attnum, const Bitmapset *updated)
{
	return bms_is_member(attnum - FirstLowInvalidHeapAttributeNumber, updated);
}

static bool
sets_resource(const FencePolicy *policy, const Bitmapset *updated)
{
	int			i;

	for (i = 0; i < policy->nparts; i++)
	{
		if (policy->parts[i].is_column &&
			is_updated(policy->columns[i].attnum, updated))
			return true;
	}
	return false;
}

/* The policies that this trigger settles for good. */
static bool
is_usual_policy(const FencePolicy *policy, const Trigger *trigger)
{
	if (policy == NULL || policy->problem != NULL || policy->observe ||
		policy->key_column != NULL)
		return false;
	return (policy->token_column != NULL) ==
		(TRIGGER_FOR_BEFORE(trigger->tgtype) != 0);
}

/*
 * May a row leave its partition?  The executor decides that before it calls
 * us.  The token may be stamped into a row whose UPDATE does not set it.
 */
static bool
may_leave(Relation relation, const FencePolicy *policy,
		  const Bitmapset *updated)
{
	Bitmapset  *columns = NULL;

	if (!relation->rd_rel->relispartition)
		return false;
	pull_varattnos((Node *) RelationGetPartitionQual(relation), 1, &columns);
	return bms_overlap(columns, updated) ||
		is_updated(policy->token_attnum, columns);
}

/* Tables where a row is what the executor has made, and nobody else asks. */
static bool
is_usual_target(const ResultRelInfo *target)
{
	Relation	relation = target->ri_RelationDesc;
	const TupleConstr *constraints = RelationGetDescr(relation)->constr;
	ListCell   *lc;

	if (relation->rd_rel->relkind != RELKIND_RELATION ||
		relation->rd_tableam != GetHeapamTableAmRoutine())
		return false;
	/* Row security would have its say on rows that are not written. */
	foreach(lc, target->ri_WithCheckOptions)
	{
		if (lfirst_node(WithCheckOption, lc)->kind == WCO_RLS_UPDATE_CHECK)
			return false;
	}
	return constraints == NULL || !constraints->has_generated_stored;
}

static bool
is_row_update(const Trigger *trigger)
{
	return TRIGGER_FOR_ROW(trigger->tgtype) &&
		TRIGGER_FOR_UPDATE(trigger->tgtype);
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
 * Is it fence.guard(), and nobody has put anything around it?
 */
static bool
is_guard(Oid function)
{
	FmgrInfo	info;

	if (function == guard_function)
		return true;
	fmgr_info(function, &info);
	if (info.fn_addr != fence_guard)
		return false;
	guard_function = function;
	return true;
}

static void
forget_guard(Datum arg, int cacheid, uint32 hashvalue)
{
	guard_function = InvalidOid;
}

static bool
is_plain_guard(const Trigger *trigger)
{
	return trigger->tgnattr == 0 && trigger->tgqual == NULL &&
		!trigger->tgdeferrable && is_guard(trigger->tgfoid);
}

/*
 * The guard's trigger that judges updates: BEFORE ROW if it has one, which
 * then is the only one for UPDATE, else AFTER ROW.
 */
static Trigger *
find_guard(const TriggerDesc *triggers)
{
	Trigger    *found = NULL;
	bool		before;
	int			i;

	if (triggers == NULL)
		return NULL;
	before = triggers->trig_update_before_row;
	if (!before && !triggers->trig_update_after_row)
		return NULL;
	for (i = 0; i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (!is_row_update(trigger))
			continue;
		if (before != (TRIGGER_FOR_BEFORE(trigger->tgtype) != 0))
			continue;
		if (strcmp(trigger->tgname, before ? FENCE_BEFORE_ROW_NAME :
				   FENCE_AFTER_ROW_NAME) == 0)
			found = trigger;
		else if (before)
			return NULL;
	}
	return found != NULL && is_plain_guard(found) ? found : NULL;
}

/*
 * Silences the guard's row triggers in the executor's own copy of the
 * descriptor, for UPDATE.  They keep their places: events that another part of
 * the query has queued are looked up there, and passed over if it has none.
 */
static void
mute(TriggerDesc *triggers, const Trigger *guard)
{
	int			i;

	triggers->trig_update_before_row = false;
	triggers->trig_update_after_row = false;
	for (i = 0; i < triggers->numtriggers; i++)
	{
		Trigger    *trigger = &triggers->triggers[i];

		if (!is_row_update(trigger))
			continue;
		if (are_siblings(trigger, guard))
			trigger->tgtype &= ~TRIGGER_TYPE_UPDATE;
		else if (TRIGGER_FOR_AFTER(trigger->tgtype))
			triggers->trig_update_after_row = true;
	}
}

/*
 * Puts the check in front of those that the target has: a trigger, too, would
 * have fired before them.
 */
static void
add_check(FastGuard *guard)
{
	ResultRelInfo *target = guard->target;

	guard->option.type = T_WithCheckOption;
	guard->option.kind = WCO_RLS_UPDATE_CHECK;
	guard->option.relname = RelationGetRelationName(target->ri_RelationDesc);
	guard->check.type = T_ExprState;
	guard->check.flags = EEO_FLAG_IS_QUAL;
	guard->check.evalfunc = guard->update.policy->token_column != NULL ?
		judge_row : judge_resource;
	guard->check.evalfunc_private = guard;
	target->ri_WithCheckOptions =
		lcons(&guard->option, list_copy(target->ri_WithCheckOptions));
	target->ri_WithCheckOptionExprs =
		lcons(&guard->check, list_copy(target->ri_WithCheckOptionExprs));
}

static void
speed_up(EState *estate, ResultRelInfo *target)
{
	Relation	relation = target->ri_RelationDesc;
	Trigger    *trigger = find_guard(target->ri_TrigDesc);
	FastGuard  *guard;
	const FencePolicy *policy;
	Bitmapset  *updated;
	bool		moves;

	if (trigger == NULL || !is_usual_target(target))
		return;
	policy = find_policy(relation, trigger);
	if (!is_usual_policy(policy, trigger))
		return;
	updated = ExecGetUpdatedCols(target, estate);
	moves = sets_resource(policy, updated);
	/* A row that comes to a resource is looked at again when it is there. */
	if ((moves && policy->token_column != NULL) ||
		may_leave(relation, policy, updated))
		return;

	/* cheaper than palloc0(), by what a loop over so much takes */
	guard = memset(palloc(sizeof(FastGuard)), 0, sizeof(FastGuard));
	guard->estate = estate;
	guard->target = target;
	guard->trigger = *trigger;
	guard->function.fn_oid = trigger->tgfoid;
	guard->function.fn_mcxt = estate->es_query_cxt;
	guard->trigdata.type = T_TriggerData;
	guard->trigdata.tg_event = TRIGGER_EVENT_UPDATE | TRIGGER_EVENT_ROW;
	if (TRIGGER_FOR_BEFORE(trigger->tgtype))
		guard->trigdata.tg_event |= TRIGGER_EVENT_BEFORE;
	guard->trigdata.tg_relation = relation;
	guard->trigdata.tg_trigger = &guard->trigger;
	guard->update.trigdata = &guard->trigdata;
	guard->update.flinfo = &guard->function;
	guard->update.policy = policy;
	guard->update.sets_token = is_updated(policy->token_attnum, updated);
	guard->update.sets_resource = moves;
	guard->update.lock = lock_row;
	guard->update.arg = guard;
	mute(target->ri_TrigDesc, &guard->trigger);
	add_check(guard);
}

static void
speed_up_node(EState *estate, PlanState *node)
{
	ModifyTableState *modify = (ModifyTableState *) node;
	int			i;

	if (!IsA(node, ModifyTableState) || modify->operation != CMD_UPDATE)
		return;
	for (i = 0; i < modify->mt_nrels; i++)
		speed_up(estate, &modify->resultRelInfo[i]);
}

/*
 * An EXPLAIN (ANALYZE) is to tell what time the triggers take, so there they
 * stay.  In a replication worker the trigger judges nothing.
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
	if (!fast_update || query->planstate == NULL || IsLogicalWorker() ||
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
	CacheRegisterSyscacheCallback(PROCOID, forget_guard, (Datum) 0);
	previous_hook = ExecutorStart_hook;
	ExecutorStart_hook = start_hook;
}
