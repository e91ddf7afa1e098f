/*-------------------------------------------------------------------------
 *
 * guard.c
 *	  The trigger function on protected tables.
 *
 * fence.protect() chooses which of these triggers a table gets:
 *
 *	AFTER STATEMENT		template without columns, no token column: one
 *						question per statement, nothing per row.
 *	AFTER ROW			judges the row as it was really written, whatever
 *						other triggers made of it.
 *	BEFORE ROW			only with a token column: finds the row's token,
 *						judges it against the old row, stamps it into the new.
 *	BEFORE TRUNCATE		row triggers do not see TRUNCATE.
 *
 * AFTER, wherever the row need not be changed: fence.check() may stand in the
 * WHERE clause of the very statement, and a BEFORE STATEMENT trigger would
 * run before it; BEFORE ROW would judge rows that are then not written.
 *
 * IDENTIFICATION
 *	  src/guard.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/index.h"
#include "catalog/pg_attribute.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "parser/parsetree.h"
#include "tcop/pquery.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "errors.h"
#include "guard.h"
#include "policy.h"
#include "present.h"
#include "resource.h"

PG_FUNCTION_INFO_V1(fence_guard);

/*
 * Kept from row to row of a statement, in fn_extra.  The executor gives each
 * result relation of each execution its own FmgrInfo.
 */
typedef struct GuardStatement
{
	StringInfoData old_name;	/* scratch: resources of the current row */
	StringInfoData new_name;

	/* The row version that BEFORE UPDATE has judged last. */
	ItemPointerData updated;

	/* The resource asked about last, and the answer while nothing changes. */
	StringInfoData asked;
	int64		token;			/* presented for it */
	uint64		generation;
	bool		mark_read;		/* is mark that of "asked"? */
	int64		mark;
} GuardStatement;

/* One call of the trigger. */
typedef struct GuardCall
{
	TriggerData *trigdata;
	Relation	relation;
	const FencePolicy *policy;
	GuardStatement *statement;
	FenceSite	site;			/* the table */
	FenceSite	token_site;		/* its token column */
	bool		in_merge;
} GuardCall;

/* Trigger functions of a MERGE that is being executed, see note_merge(). */
typedef struct MergeTarget
{
	MemoryContextCallback callback; /* unlinks this at the end */
	const FmgrInfo *functions;
	int			count;
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

static void
no_token_error(const GuardCall *call, const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_NO_TOKEN),
			 errmsg("no fencing token presented for resource \"%s\"", name),
			 fence_presented_any() ?
			 errdetail("The write on table \"%s\" needs one; this transaction has presented tokens of other resources only.",
					   RelationGetRelationName(call->relation)) :
			 errdetail("The write on table \"%s\" needs one; this transaction has presented none.",
					   RelationGetRelationName(call->relation)),
			 call->policy->token_column ?
			 errhint("Call fence.check() with the token in the same transaction before the write, or set column \"%s\".",
					 call->policy->token_column) :
			 errhint("Call fence.check() with the token in the same transaction before the write."),
			 fence_site_fields(&call->site)));
}

/*
 * Text like "(id)=(2)" for a row, NULL if there is no primary key or the
 * user may not see it.
 */
static const char *
row_key(Relation relation, TupleTableSlot *slot)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	Relation	index;
	EState	   *estate;
	char	   *key;

	list_free(RelationGetIndexList(relation));
	if (!OidIsValid(relation->rd_pkindex))
		return NULL;
	index = index_open(relation->rd_pkindex, AccessShareLock);
	estate = CreateExecutorState();
	GetPerTupleExprContext(estate)->ecxt_scantuple = slot;
	FormIndexDatum(BuildIndexInfo(index), slot, estate, values, nulls);
	key = BuildIndexValueDescription(index, values, nulls);
	FreeExecutorState(estate);
	index_close(index, AccessShareLock);
	return key;
}

/*
 * PF001 against the token in the row.  That of a row whose resource changes
 * counts as well: numbers of two resources cannot be compared, but what is
 * stored may not go down.
 */
static void
check_not_below(const GuardCall *call, const StringInfoData *name, int64 token,
				int64 stored, TupleTableSlot *slot)
{
	const char *key;

	if (token >= stored)
		return;
	key = row_key(call->relation, slot);
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_STALE_TOKEN),
			 errmsg("fencing token %lld for resource \"%s\" is stale",
					(long long) token, name->data),
			 key != NULL ?
			 errdetail("Row %s of table \"%s\" holds token %lld.",
					   key, RelationGetRelationName(call->relation),
					   (long long) stored) :
			 errdetail("The row of table \"%s\" holds token %lld.",
					   RelationGetRelationName(call->relation),
					   (long long) stored),
			 errhint("Another holder has taken over. Stop, and do not retry with this token."),
			 fence_site_fields(&call->token_site)));
}

static int64
token_value(const GuardCall *call, TupleTableSlot *slot)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, call->policy->token_attnum,
									 &isnull);

	return isnull ? 0 : DatumGetInt64(value);
}

static bool
same_name(const StringInfoData *a, const StringInfoData *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* Points the statement's memory of the last question at this resource. */
static void
ask_about(GuardStatement *statement, const StringInfoData *name)
{
	if (statement->generation == fence_present_generation() &&
		same_name(&statement->asked, name))
		return;
	resetStringInfo(&statement->asked);
	appendBinaryStringInfo(&statement->asked, name->data, name->len);
	statement->token = 0;
	statement->mark_read = false;
	statement->generation = fence_present_generation();
}

/*
 * The token presented for the resource, 0 if none is.  A policy with a lease
 * makes the presentation stand on the lease too.
 */
static int64
context_token(const GuardCall *call, const StringInfoData *name)
{
	GuardStatement *statement = call->statement;
	FenceName	resource;

	ask_about(statement, name);
	if (statement->token == 0)
	{
		resource = fence_name(name->data, name->len);
		statement->token = fence_presented(&resource);
		if (statement->token != 0 && call->policy->lease != FENCE_LEASE_NONE)
		{
			fence_present(&resource, statement->token, NULL,
						  call->policy->lease, &call->site);
			statement->generation = fence_present_generation();
		}
	}
	return statement->token;
}

static int64
require_token(const GuardCall *call, const StringInfoData *name)
{
	int64		token = context_token(call, name);

	if (token == 0)
		no_token_error(call, name->data);
	return token;
}

/*
 * A token that the statement sets in the token column.
 */
static void
accept_column_token(const GuardCall *call, const StringInfoData *name,
					int64 token)
{
	FenceName	resource;

	if (token < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid fencing token: %lld", (long long) token),
				 errdetail("It was set in column \"%s\" of table \"%s\".",
						   call->policy->token_column,
						   RelationGetRelationName(call->relation)),
				 errhint("Fencing tokens start at 1."),
				 fence_site_fields(&call->token_site)));
	if (!fence_policy_presents(call->policy) ||
		context_token(call, name) == token)
		return;
	resource = fence_name(name->data, name->len);
	fence_present(&resource, token, NULL, call->policy->lease,
				  &call->token_site);
}

/*
 * Row marks alone: a row that appears has no old row to be judged against.
 * Whoever deleted one of this resource has left its token as the mark of the
 * resource, and whoever acquired the resource here has too.
 */
static void
judge_new_row(const GuardCall *call, const StringInfoData *name, int64 token)
{
	GuardStatement *statement = call->statement;
	FenceName	resource;
	FenceRow	row;

	ask_about(statement, name);
	if (statement->mark_read && token >= statement->mark)
		return;
	resource = fence_name(name->data, name->len);
	fence_row_read(&resource, &row);
	if (token < row.mark)
		fence_stale_error(&resource, token, &row, &call->token_site);
	statement->mark = row.mark;
	statement->mark_read = true;
}

static void
render(const GuardCall *call, TupleTableSlot *slot, StringInfo name)
{
	fence_policy_resource(call->policy, call->relation, slot, name);
}

/*
 * The tuple with this token in the token column.
 */
static HeapTuple
stamp(const GuardCall *call, HeapTuple tuple, int64 present, int64 token)
{
	int			column = call->policy->token_attnum;
	Datum		value = Int64GetDatum(token);
	bool		isnull = false;

	if (present == token)
		return tuple;
	return heap_modify_tuple_by_cols(tuple, RelationGetDescr(call->relation),
									 1, &column, &value, &isnull);
}

/*
 * An INSERT does not tell which columns it sets.  Null is no token, and
 * neither is 0 where it may come from the column's default.
 */
static bool
insert_sets_token(const GuardCall *call, int64 value)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(call->relation),
											 call->policy->token_attnum - 1);
	TupleTableSlot *slot = call->trigdata->tg_trigslot;

	if (slot_attisnull(slot, call->policy->token_attnum))
		return false;
	return value != 0 || !column->atthasdef;
}

static HeapTuple
before_insert(const GuardCall *call)
{
	TupleTableSlot *slot = call->trigdata->tg_trigslot;
	StringInfo	name = &call->statement->new_name;
	int64		set = token_value(call, slot);
	int64		token = set;

	render(call, slot, name);
	if (insert_sets_token(call, token))
		accept_column_token(call, name, token);
	else
		token = require_token(call, name);
	if (!fence_policy_presents(call->policy))
		judge_new_row(call, name, token);
	return stamp(call, call->trigdata->tg_trigtuple, set, token);
}

/*
 * Does this UPDATE set the token column?  In a MERGE the set of columns is
 * the union over all actions, so there an unchanged value proves nothing.
 */
static bool
update_sets_token(const GuardCall *call)
{
	TriggerData *trigdata = call->trigdata;
	AttrNumber	attnum = call->policy->token_attnum;

	if (!bms_is_member(attnum - FirstLowInvalidHeapAttributeNumber,
					   trigdata->tg_updatedcols) ||
		slot_attisnull(trigdata->tg_newslot, attnum))
		return false;
	return !call->in_merge ||
		token_value(call, trigdata->tg_newslot) !=
		token_value(call, trigdata->tg_trigslot);
}

static HeapTuple
before_update(const GuardCall *call)
{
	GuardStatement *statement = call->statement;
	TupleTableSlot *old = call->trigdata->tg_trigslot;
	TupleTableSlot *new = call->trigdata->tg_newslot;
	int64		stored = token_value(call, old);
	int64		set = token_value(call, new);
	int64		token = set;
	bool		same;

	render(call, old, &statement->old_name);
	render(call, new, &statement->new_name);
	same = same_name(&statement->old_name, &statement->new_name);

	if (!same)
		check_not_below(call, &statement->old_name,
						require_token(call, &statement->old_name),
						stored, old);
	if (update_sets_token(call))
		accept_column_token(call, &statement->new_name, token);
	else
		token = require_token(call, &statement->new_name);
	check_not_below(call, &statement->new_name, token, stored, old);
	if (!same && !fence_policy_presents(call->policy))
		judge_new_row(call, &statement->new_name, token);

	statement->updated = old->tts_tid;
	return stamp(call, call->trigdata->tg_newtuple, set, token);
}

/*
 * A row that an UPDATE moves to another partition is deleted here and
 * inserted there.  The UPDATE has been judged a moment ago.
 */
static bool
is_moved(const GuardCall *call)
{
	return ItemPointerIsValid(&call->statement->updated) &&
		ItemPointerEquals(&call->statement->updated,
						  &call->trigdata->tg_trigslot->tts_tid);
}

static HeapTuple
before_delete(const GuardCall *call)
{
	TupleTableSlot *old = call->trigdata->tg_trigslot;
	StringInfo	name = &call->statement->old_name;

	if (!is_moved(call))
	{
		render(call, old, name);
		check_not_below(call, name, require_token(call, name),
						token_value(call, old), old);
	}
	return call->trigdata->tg_trigtuple;
}

static HeapTuple
before_row(const GuardCall *call)
{
	TriggerEvent event = call->trigdata->tg_event;

	if (TRIGGER_FIRED_BY_INSERT(event))
		return before_insert(call);
	if (TRIGGER_FIRED_BY_UPDATE(event))
		return before_update(call);
	return before_delete(call);
}

static void
triggered_change_error(const GuardCall *call, const StringInfoData *name,
					   int64 token)
{
	ereport(ERROR,
			(errcode(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION),
			 errmsg("a trigger has replaced the fencing token for resource \"%s\"",
					name->data),
			 token == 0 ?
			 errdetail("Column \"%s\" of table \"%s\" is to hold no token.",
					   call->policy->token_column,
					   RelationGetRelationName(call->relation)) :
			 errdetail("Column \"%s\" of table \"%s\" is to hold token %lld, which this transaction has not presented.",
					   call->policy->token_column,
					   RelationGetRelationName(call->relation),
					   (long long) token),
			 errhint("Triggers that fire after the guard must not change this column."),
			 fence_site_fields(&call->token_site)));
}

/*
 * With a token column, what was judged in BEFORE ROW is judged again as it
 * was written: a trigger that fires later may have changed it, and an INSERT
 * may have waited for the DELETE of a newer holder.
 */
static void
after_row_with_token(const GuardCall *call, TupleTableSlot *old,
					 TupleTableSlot *new)
{
	StringInfo	old_name = &call->statement->old_name;
	StringInfo	new_name = &call->statement->new_name;
	int64		token = token_value(call, new);
	bool		same = true;

	render(call, new, new_name);
	if (token < 1)
		triggered_change_error(call, new_name, 0);
	if (old != NULL)
	{
		check_not_below(call, new_name, token, token_value(call, old), old);
		render(call, old, old_name);
		same = same_name(old_name, new_name);
	}
	if (!same)
		(void) require_token(call, old_name);
	if (fence_policy_presents(call->policy))
	{
		if (token > require_token(call, new_name))
			triggered_change_error(call, new_name, token);
	}
	else if (old == NULL || !same)
		judge_new_row(call, new_name, token);
}

static void
after_row(const GuardCall *call)
{
	TriggerData *trigdata = call->trigdata;
	StringInfo	old_name = &call->statement->old_name;
	StringInfo	new_name = &call->statement->new_name;
	TupleTableSlot *old = NULL;
	TupleTableSlot *new = NULL;

	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		new = trigdata->tg_trigslot;
	else
		old = trigdata->tg_trigslot;
	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
		new = trigdata->tg_newslot;

	if (call->policy->token_column != NULL)
	{
		if (new != NULL)
			after_row_with_token(call, old, new);
		return;
	}
	if (new != NULL)
	{
		render(call, new, new_name);
		(void) require_token(call, new_name);
	}
	if (old != NULL)
	{
		render(call, old, old_name);
		if (new == NULL || !same_name(old_name, new_name))
			(void) require_token(call, old_name);
	}
}

/*
 * Statements, TRUNCATE among them, on a resource that does not depend on the
 * row.
 */
static void
whole_table(const GuardCall *call)
{
	StringInfo	name = &call->statement->new_name;

	if (call->policy->has_columns)
		ereport(ERROR,
				(errcode(ERRCODE_FENCE_NO_TOKEN),
				 errmsg("cannot truncate table \"%s\"",
						RelationGetRelationName(call->relation)),
				 errdetail("Its rows belong to different resources (\"%s\"), and no token covers them all.",
						   call->policy->resource),
				 errhint("Delete the rows of one resource at a time, or remove the guard with fence.unprotect()."),
				 fence_site_fields(&call->site)));
	fence_policy_resource(call->policy, call->relation, NULL, name);
	(void) require_token(call, name);
}

static GuardStatement *
statement_state(FmgrInfo *flinfo)
{
	if (flinfo->fn_extra == NULL)
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(flinfo->fn_mcxt);
		GuardStatement *statement = palloc0(sizeof(GuardStatement));

		ItemPointerSetInvalid(&statement->updated);
		initStringInfo(&statement->old_name);
		initStringInfo(&statement->new_name);
		initStringInfo(&statement->asked);
		flinfo->fn_extra = statement;
		MemoryContextSwitchTo(oldcxt);
	}
	return flinfo->fn_extra;
}

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
 * Is the trigger fired by a MERGE, or may it be?
 */
static bool
is_in_merge(const FmgrInfo *flinfo, Relation relation)
{
	MergeTarget *target;

	for (target = merge_targets; target != NULL; target = target->next)
	{
		if (flinfo >= target->functions &&
			flinfo < target->functions + target->count)
			return true;
	}

	/*
	 * The statement that made the library load was started without our hook.
	 * In a function, say, it cannot be told from a MERGE, and then counts as
	 * one.  Preloading the library leaves no such doubt.
	 */
	return loading_portal != NULL && ActivePortal == loading_portal &&
		ActivePortal->creation_time == loading_time &&
		!is_plain_write(relation);
}

/* Is the trigger of a kind that serves its policy? */
static bool
is_proper_kind(const FencePolicy *policy, TriggerEvent event)
{
	if (TRIGGER_FIRED_BY_TRUNCATE(event))
		return true;
	if (TRIGGER_FIRED_FOR_STATEMENT(event))
		return TRIGGER_FIRED_AFTER(event) && !policy->has_columns &&
			policy->token_column == NULL;
	if (TRIGGER_FIRED_BEFORE(event))
		return policy->token_column != NULL;
	return TRIGGER_FIRED_AFTER(event);
}

/*
 * The trigger function fence.guard().  Its arguments are the policy, see
 * policy.c.
 */
Datum
fence_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	GuardCall	call;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("fence.guard() must be called as trigger")));

	call.trigdata = trigdata;
	call.relation = trigdata->tg_relation;
	call.policy = fence_policy_of_trigger(call.relation, trigdata->tg_trigger);
	call.statement = statement_state(fcinfo->flinfo);
	call.site.relation = call.token_site.relation = call.relation;
	call.site.attnum = InvalidAttrNumber;
	call.token_site.attnum = call.policy->token_attnum;
	call.in_merge = is_in_merge(fcinfo->flinfo, call.relation);

	if (!is_proper_kind(call.policy, trigdata->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("trigger \"%s\" on table \"%s\" is not of a kind that can guard it",
						trigdata->tg_trigger->tgname,
						RelationGetRelationName(call.relation)),
				 errhint("Let fence.protect() create the triggers."),
				 fence_site_fields(&call.site)));

	if (TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event))
		whole_table(&call);
	else if (TRIGGER_FIRED_BEFORE(trigdata->tg_event))
		return PointerGetDatum(before_row(&call));
	else
		after_row(&call);
	return PointerGetDatum(NULL);
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
 * Notes the trigger functions of a MERGE's target relations for as long as
 * the execution lives.  That is the only way for a trigger to know that it
 * is fired by a MERGE.
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
fence_guard_init(void)
{
	loading_portal = ActivePortal;
	if (loading_portal != NULL)
		loading_time = loading_portal->creation_time;
	prev_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}
