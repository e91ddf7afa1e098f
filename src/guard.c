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
 *	BEFORE ROW			with a token column: finds the row's token, judges it
 *						against the old row, stamps it into the new.  With a
 *						key column: claims the row's key, see guard_key.c.
 *	BEFORE TRUNCATE		row triggers do not see TRUNCATE.
 *
 * AFTER, wherever the row need not be changed: fence.check() may stand in the
 * WHERE clause of the very statement, and a BEFORE STATEMENT trigger would
 * run before it; BEFORE ROW would judge rows that are then not written.
 *
 * A judge below returns whether nothing speaks against the write, and leaves
 * its verdict in the call otherwise.  Only fence_guard() reports it: as an
 * error, or, where the policy says "observe", as a warning.
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
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "claimed.h"
#include "errors.h"
#include "execution.h"
#include "guard.h"
#include "guard_key.h"
#include "judge.h"
#include "merge.h"
#include "policy.h"
#include "present.h"
#include "resource.h"
#include "row_name.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(fence_guard);

/*
 * Kept from row to row of a statement, in fn_extra.  The executor gives each
 * result relation of each execution its own FmgrInfo.
 */
typedef struct GuardStatement
{
	const FencePolicy *policy;	/* no execution outlives its transaction */
	bool		in_merge;
	bool		unfit;			/* can judge nothing, and has said so */

	FenceRowName old_name;		/* of the row judged last */
	FenceRowName new_name;

	/* The row version that BEFORE UPDATE has judged last. */
	ItemPointerData updated;

	/* The resource asked about last, and the answer while nothing changes. */
	StringInfoData asked;
	int64		token;			/* presented for it */
	uint64		generation;
	bool		mark_read;		/* has its mark been read? */
	int64		lowest;			/* a token that is not below that mark */

	Datum		values[FLEXIBLE_ARRAY_MEMBER];	/* for the names */
} GuardStatement;

/* One call of the trigger. */
typedef struct GuardCall
{
	TriggerData *trigdata;
	Relation	relation;
	const FencePolicy *policy;
	GuardStatement *statement;
	const FmgrInfo *flinfo;
	const FenceUpdate *update;	/* NULL in a trigger: the row is locked */
	bool		changed;		/* it could not be locked as it was */

	const FenceVerdict *verdict;	/* NULL while nothing speaks against it */
	AttrNumber	attnum;			/* the column that it is about, or 0 */
} GuardCall;

/* pg_fence.bypass: no guard judges anything (superuser, maintenance). */
static bool bypass = false;

static bool
accepted(GuardCall *call, const FenceVerdict *verdict, AttrNumber attnum)
{
	call->verdict = verdict;
	call->attnum = attnum;
	return verdict == NULL;
}

static FenceName
resource_of(FenceRowName *name)
{
	const StringInfoData *text = fence_row_name_text(name);

	return fence_name(text->data, text->len);
}

/* Could the statement have set the token column? */
static bool
could_set_token(const GuardCall *call)
{
	return call->policy->token_column != NULL &&
		(call->update != NULL ||
		 TRIGGER_FIRED_BY_INSERT(call->trigdata->tg_event) ||
		 TRIGGER_FIRED_BY_UPDATE(call->trigdata->tg_event));
}

static bool
refuse_no_token(GuardCall *call, FenceRowName *name)
{
	const char *table = RelationGetRelationName(call->relation);
	FenceName	resource = resource_of(name);
	FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_FENCE_NO_TOKEN,
							psprintf("no fencing token presented for resource \"%s\"",
									 fence_row_name_text(name)->data),
							psprintf("The write on table \"%s\" needs one; this transaction has presented %s.",
									 table, fence_presented_any() ?
									 "tokens of other resources only" : "none"),
							could_set_token(call) ?
							psprintf("Call fence.check() with the token in the same transaction before the write, or set column \"%s\".",
									 call->policy->token_column) :
							"Call fence.check() with the token in the same transaction before the write.");
	return accepted(call, fence_verdict_about(verdict, &resource, 0, 0),
					InvalidAttrNumber);
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
static bool
not_below(GuardCall *call, FenceRowName *name, int64 token,
		  int64 stored, TupleTableSlot *slot)
{
	const char *key;
	FenceName	resource;
	FenceVerdict *verdict;

	if (token >= stored)
		return true;
	resource = resource_of(name);
	key = row_key(call->relation, slot);
	verdict = fence_verdict(ERRCODE_FENCE_STALE_TOKEN,
							psprintf("fencing token %lld for resource \"%s\" is stale",
									 (long long) token,
									 fence_row_name_text(name)->data),
							psprintf("%s of table \"%s\" holds token %lld.",
									 key != NULL ? psprintf("Row %s", key) :
									 "The row",
									 RelationGetRelationName(call->relation),
									 (long long) stored),
							"Another holder has taken over. Stop, and do not retry with this token.");
	return accepted(call, fence_verdict_about(verdict, &resource, token,
											  stored),
					call->policy->token_attnum);
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
same_text(const StringInfoData *a, const StringInfoData *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static bool
same_name(FenceRowName *a, FenceRowName *b)
{
	return a == b ||
		same_text(fence_row_name_text(a), fence_row_name_text(b));
}

/* Points the statement's memory of the last question at this resource. */
static void
ask_about(GuardStatement *statement, FenceRowName *name)
{
	const StringInfoData *text = fence_row_name_text(name);
	MemoryContext oldcxt;

	if (statement->generation == fence_present_generation() &&
		same_text(&statement->asked, text))
		return;
	if (statement->asked.data == NULL)
	{
		oldcxt = MemoryContextSwitchTo(name->cxt);
		initStringInfo(&statement->asked);
		MemoryContextSwitchTo(oldcxt);
	}
	resetStringInfo(&statement->asked);
	appendBinaryStringInfo(&statement->asked, text->data, text->len);
	statement->token = 0;
	statement->mark_read = false;
	statement->generation = fence_present_generation();
}

static FenceToken
make_token(const GuardCall *call, FenceRowName *name, int64 number)
{
	FenceToken	token;

	token.name = resource_of(name);
	token.number = number;
	token.holder = NULL;
	token.lease = call->policy->lease;
	token.observed = call->policy->observe;
	return token;
}

/*
 * Presents a token, which may raise the mark, and with that fence off an older
 * holder: that must wait until the row is ours to write.
 */
static bool
present(GuardCall *call, const FenceToken *token, AttrNumber attnum)
{
	const FenceUpdate *update = call->update;

	if (update != NULL && !update->lock(update->arg))
	{
		call->changed = true;
		return false;
	}
	return accepted(call, fence_present(token), attnum);
}

/*
 * Sets *token to the one presented for the resource, 0 if none is.  It is
 * presented once more: this policy may demand the lease too, or demand what
 * so far was only observed.  That raises no mark, so the row need not be ours.
 */
static bool
context_token(GuardCall *call, FenceRowName *name, int64 *token)
{
	GuardStatement *statement = call->statement;
	FenceToken	again;

	ask_about(statement, name);
	if (statement->token == 0)
	{
		again = make_token(call, name, 0);
		again.number = fence_presented(&again.name);
		if (again.number != 0 &&
			!accepted(call, fence_present(&again), InvalidAttrNumber))
			return false;
		statement->token = again.number;
		statement->generation = fence_present_generation();
	}
	*token = statement->token;
	return true;
}

static bool
require_token(GuardCall *call, FenceRowName *name, int64 *token)
{
	return context_token(call, name, token) &&
		(*token != 0 || refuse_no_token(call, name));
}

static bool
refuse_number(GuardCall *call, int64 number)
{
	const FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_INVALID_PARAMETER_VALUE,
							psprintf("invalid fencing token: %lld",
									 (long long) number),
							psprintf("It was set in column \"%s\" of table \"%s\".",
									 call->policy->token_column,
									 RelationGetRelationName(call->relation)),
							"Fencing tokens start at 1.");
	return accepted(call, verdict, call->policy->token_attnum);
}

/*
 * A token that the statement sets in the token column is presented, unless it
 * has been.
 */
static bool
present_column_token(GuardCall *call, FenceRowName *name, int64 number)
{
	FenceToken	token;
	int64		context;

	if (!context_token(call, name, &context))
		return false;
	if (context == number)
		return true;
	token = make_token(call, name, number);
	return present(call, &token, call->policy->token_attnum);
}

/*
 * Row marks alone: a row that appears has no old row to be judged against.
 * Whoever deleted one of this resource has left its token as the mark of the
 * resource, and whoever acquired the resource here has too.
 */
static bool
judge_new_row(GuardCall *call, FenceRowName *name, int64 token)
{
	GuardStatement *statement = call->statement;
	FenceName	resource = resource_of(name);
	FenceRow	row;

	ask_about(statement, name);
	if (statement->mark_read && token >= statement->lowest)
		return true;
	fence_row_read(&resource, &row);
	if (fence_row_outranks(&row, token))
		return accepted(call, fence_stale(&resource, token, &row),
						call->policy->token_attnum);
	statement->lowest = token;
	statement->mark_read = true;
	return true;
}

static bool
render(GuardCall *call, TupleTableSlot *slot, FenceRowName *name)
{
	AttrNumber	attnum = InvalidAttrNumber;
	const FenceVerdict *verdict;

	verdict = fence_row_name_set(name, call->relation, slot, &attnum);
	return accepted(call, verdict, attnum);
}

/*
 * The name of the other version of an updated row, whose first version is
 * named already; NULL if it has none.  Mostly it is the same.
 */
static FenceRowName *
name_other(GuardCall *call, FenceRowName *name, TupleTableSlot *other,
		   FenceRowName *other_name)
{
	if ((call->update != NULL && !call->update->sets_resource) ||
		fence_row_name_fits(name, other))
		return name;
	return render(call, other, other_name) ? other_name : NULL;
}

/*
 * The tuple with this token in the token column.
 */
static HeapTuple
stamp(const GuardCall *call, HeapTuple tuple, int64 token)
{
	int			column = call->policy->token_attnum;
	Datum		value = Int64GetDatum(token);
	bool		isnull = false;

	return heap_modify_tuple_by_cols(tuple, RelationGetDescr(call->relation),
									 1, &column, &value, &isnull);
}

/*
 * An INSERT does not tell which columns it sets.  Null is no token, and
 * neither is 0 where it may come from the column's default.
 */
static bool
insert_sets_token(const GuardCall *call, TupleTableSlot *new)
{
	Form_pg_attribute column = TupleDescAttr(RelationGetDescr(call->relation),
											 call->policy->token_attnum - 1);

	if (slot_attisnull(new, call->policy->token_attnum))
		return false;
	return token_value(call, new) != 0 || !column->atthasdef;
}

/*
 * Does this UPDATE set the token column?  In a MERGE the set of columns is
 * the union over all actions, so there an unchanged value proves nothing.
 */
static bool
update_sets_token(const GuardCall *call, TupleTableSlot *old,
				  TupleTableSlot *new)
{
	AttrNumber	attnum = call->policy->token_attnum;
	bool		is_set = call->update != NULL ? call->update->sets_token :
		bms_is_member(attnum - FirstLowInvalidHeapAttributeNumber,
					  call->trigdata->tg_updatedcols);

	if (!is_set || slot_attisnull(new, attnum))
		return false;
	return !call->statement->in_merge ||
		token_value(call, new) != token_value(call, old);
}

/* The token of the row: what the statement sets, else what is presented. */
static bool
row_token(GuardCall *call, FenceRowName *name, TupleTableSlot *new,
		  bool is_set, int64 *token)
{
	*token = token_value(call, new);
	if (!is_set)
		return require_token(call, name, token);
	if (*token < 1)
		return refuse_number(call, *token);
	return !fence_policy_presents(call->policy) ||
		present_column_token(call, name, *token);
}

static bool
judge_insert(GuardCall *call, TupleTableSlot *new, int64 *token)
{
	FenceRowName *name = &call->statement->new_name;

	return render(call, new, name) &&
		row_token(call, name, new, insert_sets_token(call, new),
				  token) &&
		(fence_policy_presents(call->policy) ||
		 judge_new_row(call, name, *token));
}

/* The row leaves its resource for another one: with a token of its own. */
static bool
judge_leaving(GuardCall *call, TupleTableSlot *old)
{
	FenceRowName *name = &call->statement->old_name;
	int64		token;

	return require_token(call, name, &token) &&
		not_below(call, name, token, token_value(call, old), old);
}

static bool
judge_update(GuardCall *call, TupleTableSlot *old, TupleTableSlot *new,
			 int64 *token)
{
	FenceRowName *old_name = &call->statement->old_name;
	FenceRowName *name;
	bool		same;

	if (!render(call, old, old_name))
		return false;
	name = name_other(call, old_name, new, &call->statement->new_name);
	if (name == NULL)
		return false;
	same = name == old_name || same_name(old_name, name);

	return (same || judge_leaving(call, old)) &&
		row_token(call, name, new, update_sets_token(call, old, new),
				  token) &&
		not_below(call, name, *token, token_value(call, old), old) &&
		(same || fence_policy_presents(call->policy) ||
		 judge_new_row(call, name, *token));
}

/*
 * A row that an UPDATE moves to another partition is deleted here and
 * inserted there.  The UPDATE has been judged a moment ago.
 */
static bool
is_moved(const GuardCall *call, TupleTableSlot *old)
{
	return call->relation->rd_rel->relispartition &&
		ItemPointerIsValid(&call->statement->updated) &&
		ItemPointerEquals(&call->statement->updated, &old->tts_tid);
}

/*
 * Has the row that is deleted been judged a moment ago?  Not for certain in a
 * MERGE: if a later trigger has dropped the UPDATE, the same row may be
 * deleted by another action.
 */
static bool
is_judged(const GuardCall *call, TupleTableSlot *old)
{
	return is_moved(call, old) &&
		!(call->statement->in_merge &&
		  fence_has_later_trigger(call->trigdata));
}

/* The row with its token; the one that is in it already is not stamped. */
static HeapTuple
with_token(const GuardCall *call, TupleTableSlot *slot, HeapTuple tuple,
		   int64 token)
{
	return token_value(call, slot) == token ? tuple :
		stamp(call, tuple, token);
}

static HeapTuple
before_update(GuardCall *call)
{
	TriggerData *trigdata = call->trigdata;
	TupleTableSlot *new = trigdata->tg_newslot;
	int64		token;

	if (!judge_update(call, trigdata->tg_trigslot, new, &token))
		return trigdata->tg_newtuple;
	return with_token(call, new, trigdata->tg_newtuple, token);
}

/*
 * BEFORE ROW, with a token column: returns the tuple to go on with.
 */
static HeapTuple
before_row(GuardCall *call)
{
	TriggerData *trigdata = call->trigdata;
	TupleTableSlot *slot = trigdata->tg_trigslot;
	HeapTuple	tuple = trigdata->tg_trigtuple;
	int64		token;

	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
		return before_update(call);
	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		return judge_insert(call, slot, &token) ?
			with_token(call, slot, tuple, token) : tuple;
	if (!is_judged(call, slot) &&
		render(call, slot, &call->statement->old_name))
		(void) judge_leaving(call, slot);
	return tuple;
}

static bool
refuse_triggered_change(GuardCall *call, FenceRowName *name,
						int64 token)
{
	const char *table = RelationGetRelationName(call->relation);
	const char *column = call->policy->token_column;
	FenceName	resource = resource_of(name);
	FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_TRIGGERED_DATA_CHANGE_VIOLATION,
							psprintf("a trigger has replaced the fencing token for resource \"%s\"",
									 fence_row_name_text(name)->data),
							token == 0 ?
							psprintf("Column \"%s\" of table \"%s\" is to hold no token.",
									 column, table) :
							psprintf("Column \"%s\" of table \"%s\" is to hold token %lld, which this transaction has not presented.",
									 column, table, (long long) token),
							"Triggers that fire after the guard must not change this column.");
	return accepted(call, fence_verdict_about(verdict, &resource, token, 0),
					call->policy->token_attnum);
}

/*
 * AFTER ROW, with a token column: what was judged in BEFORE ROW is judged
 * again as it was written.  A trigger that fires later may have changed it,
 * and an INSERT may have waited for the DELETE of a newer holder.
 */
static bool
judge_written(GuardCall *call, TupleTableSlot *old, TupleTableSlot *new)
{
	FenceRowName *old_name;
	FenceRowName *name = &call->statement->new_name;
	int64		token = token_value(call, new);
	int64		presented;
	bool		same = true;

	if (!render(call, new, name))
		return false;
	if (token < 1)
		return refuse_triggered_change(call, name, 0);
	if (old != NULL)
	{
		if (!not_below(call, name, token, token_value(call, old), old))
			return false;
		old_name = name_other(call, name, old, &call->statement->old_name);
		if (old_name == NULL)
			return false;
		same = same_name(old_name, name);
		if (!same && !require_token(call, old_name, &presented))
			return false;
	}
	if (fence_policy_presents(call->policy))
		return require_token(call, name, &presented) &&
			(token <= presented ||
			 refuse_triggered_change(call, name, token));
	return (old != NULL && same) || judge_new_row(call, name, token);
}

/* AFTER ROW, without: the resources of the row, as written. */
static bool
judge_resources(GuardCall *call, TupleTableSlot *old, TupleTableSlot *new)
{
	FenceRowName *old_name = &call->statement->old_name;
	FenceRowName *new_name = &call->statement->new_name;
	int64		token;

	if (new != NULL && (!render(call, new, new_name) ||
						!require_token(call, new_name, &token)))
		return false;
	if (old == NULL)
		return true;
	if (new == NULL)
		return render(call, old, old_name) &&
			require_token(call, old_name, &token);
	old_name = name_other(call, new_name, old, old_name);
	return old_name != NULL &&
		(same_name(old_name, new_name) ||
		 require_token(call, old_name, &token));
}

static void
after_row(GuardCall *call)
{
	TriggerData *trigdata = call->trigdata;
	TupleTableSlot *old = NULL;
	TupleTableSlot *new = NULL;

	if (TRIGGER_FIRED_BY_INSERT(trigdata->tg_event))
		new = trigdata->tg_trigslot;
	else
		old = trigdata->tg_trigslot;
	if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
		new = trigdata->tg_newslot;

	if (call->policy->token_column == NULL)
		(void) judge_resources(call, old, new);
	else if (new != NULL)
		(void) judge_written(call, old, new);
}

/*
 * TRUNCATE of a table with a token column: no row may hold a newer token.
 * The table is locked already, so nobody can add one.
 */
static bool
judge_stored_rows(GuardCall *call, FenceRowName *name, int64 token)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(call->relation, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(call->relation, NULL);

	while (call->verdict == NULL &&
		   table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		(void) not_below(call, name, token, token_value(call, slot), slot);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	return call->verdict == NULL;
}

/*
 * The statement asked admit(), which has answered that all is done, so it
 * needs no token; and it has kept to that: a transaction without an id has
 * written nothing so far.  A TRUNCATE cannot ask, and is still to write.
 */
static bool
is_replay(const GuardCall *call, const StringInfoData *name)
{
	FenceStatement statement;

	if (TRIGGER_FIRED_BY_TRUNCATE(call->trigdata->tg_event) ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return false;
	statement = fence_statement(call->flinfo);
	return fence_replayed(name->data, &statement);
}

/*
 * Statements, TRUNCATE among them, on a resource that does not depend on the
 * row.
 */
static bool
judge_whole_table(GuardCall *call)
{
	FenceRowName *name = &call->statement->new_name;
	const FenceVerdict *verdict;
	int64		token;

	if (!call->policy->has_columns)
		return render(call, NULL, name) &&
			(is_replay(call, fence_row_name_text(name)) ||
			 require_token(call, name, &token)) &&
			(call->policy->token_column == NULL ||
			 call->relation->rd_rel->relkind != RELKIND_RELATION ||
			 judge_stored_rows(call, name, token));
	verdict = fence_verdict(ERRCODE_FENCE_NO_TOKEN,
							psprintf("cannot truncate table \"%s\"",
									 RelationGetRelationName(call->relation)),
							psprintf("Its rows belong to different resources (\"%s\"), and no token covers them all.",
									 call->policy->resource),
							"Delete the rows of one resource at a time, or remove the guard with fence.unprotect().");
	return accepted(call, verdict, InvalidAttrNumber);
}

static GuardStatement *
make_statement(const GuardCall *call, FmgrInfo *flinfo)
{
	MemoryContext cxt = flinfo->fn_mcxt;
	const FencePolicy *policy;
	GuardStatement *statement;

	policy = call->update != NULL ? call->update->policy :
		fence_policy_of_trigger(call->relation, call->trigdata->tg_trigger);
	statement = MemoryContextAllocZero(cxt,
									   offsetof(GuardStatement, values) +
									   2 * policy->nparts * sizeof(Datum));
	statement->policy = policy;
	statement->in_merge = fence_in_merge(flinfo, call->relation);
	fence_row_name_init(&statement->old_name, policy, cxt, statement->values);
	fence_row_name_init(&statement->new_name, policy, cxt,
						statement->values + policy->nparts);
	ItemPointerSetInvalid(&statement->updated);
	return statement;
}

/*
 * Finds the policy, and what is kept of the rows before this one.
 */
static inline void
open_statement(GuardCall *call, FmgrInfo *flinfo)
{
	if (flinfo->fn_extra == NULL)
		flinfo->fn_extra = make_statement(call, flinfo);
	call->statement = flinfo->fn_extra;
	call->policy = call->statement->policy;
}

/* Is there a BEFORE ROW guard, too? */
static bool
has_before_row(const GuardCall *call)
{
	const TriggerDesc *triggers = call->relation->trigdesc;
	int			i;

	for (i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgfoid == call->trigdata->tg_trigger->tgfoid &&
			TRIGGER_FOR_ROW(trigger->tgtype) &&
			TRIGGER_FOR_BEFORE(trigger->tgtype))
			return true;
	}
	return false;
}

/* Is the trigger of a kind that serves its policy? */
static bool
is_proper_kind(const GuardCall *call)
{
	TriggerEvent event = call->trigdata->tg_event;
	bool		before_row = call->policy->token_column != NULL ||
		call->policy->key_column != NULL;

	if (TRIGGER_FIRED_BY_TRUNCATE(event))
		return true;
	if (TRIGGER_FIRED_FOR_STATEMENT(event))
		return TRIGGER_FIRED_AFTER(event) && !call->policy->has_columns &&
			!before_row;
	if (TRIGGER_FIRED_BEFORE(event))
		return before_row;
	return TRIGGER_FIRED_AFTER(event) && (!before_row ||
										  has_before_row(call));
}

static const FenceVerdict *
judge_kind(const GuardCall *call)
{
	if (is_proper_kind(call))
		return NULL;
	return fence_verdict(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED,
						 psprintf("trigger \"%s\" on table \"%s\" is not of a kind that can guard it",
								  call->trigdata->tg_trigger->tgname,
								  RelationGetRelationName(call->relation)),
						 "As it fires, it cannot judge all writes by its policy.",
						 "Let fence.protect() create the triggers.");
}

/*
 * Is this the first report about the execution?  One warning, or one line in
 * the log, is enough for all its triggers, rows and partitions.
 */
static bool
first_report(const GuardCall *call)
{
	FenceExecution *execution = fence_execution(call->flinfo);
	bool		first = !execution->reported;

	execution->reported = true;
	return first;
}

/*
 * An error, or a warning where the guard only observes.  In place of a write,
 * INSTEAD OF, there is nothing to let through.
 */
static void
report(const GuardCall *call)
{
	FenceSite	site;

	site.relation = call->relation;
	site.attnum = call->attnum;
	if (!call->policy->observe ||
		TRIGGER_FIRED_INSTEAD(call->trigdata->tg_event))
		fence_verdict_report(ERROR, call->verdict, &site);
	if (first_report(call))
		fence_verdict_report(WARNING, call->verdict, &site);
}

/*
 * The key of the row.  It comes before the token: what is a duplicate is done
 * already, however late its writer is.  Returns whether to go on.
 */
static bool
judge_key(GuardCall *call)
{
	TriggerEvent event = call->trigdata->tg_event;
	FenceKeyedRow row = {call->policy, call->trigdata, call->flinfo};
	const FenceVerdict *verdict = NULL;
	bool		skip = false;

	if (call->policy->key_column == NULL)
		return true;
	if (!TRIGGER_FIRED_BY_DELETE(event))
		verdict = TRIGGER_FIRED_BEFORE(event) ?
			fence_key_before_write(&row, &skip) : fence_key_after_write(&row);
	else if (TRIGGER_FIRED_BEFORE(event))
		fence_key_before_delete(&row, is_moved(call,
											   call->trigdata->tg_trigslot));
	if (!accepted(call, verdict, call->policy->key.attnum))
	{
		report(call);
		call->verdict = NULL;
	}
	return !skip;
}

/* A row trigger. */
static Datum
judge_row(GuardCall *call, Datum unchanged)
{
	TriggerData *trigdata = call->trigdata;
	Datum		result = unchanged;

	if (!judge_key(call))
		return PointerGetDatum(NULL);
	if (!TRIGGER_FIRED_BEFORE(trigdata->tg_event))
		after_row(call);
	else
	{
		if (call->policy->token_column != NULL)
			result = PointerGetDatum(before_row(call));
		if (TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event))
			call->statement->updated = trigdata->tg_trigslot->tts_tid;
	}
	return result;
}

/* What the executor expects of a trigger that has nothing to say. */
static Datum
unchanged(const TriggerData *trigdata)
{
	if (TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event))
		return PointerGetDatum(NULL);
	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) ?
						   trigdata->tg_newtuple : trigdata->tg_trigtuple);
}

static void
trigger_context(void *arg)
{
	errcontext("guard trigger \"%s\"", ((const Trigger *) arg)->tgname);
}

/*
 * The first call in a statement.  The trigger is named in the context, since
 * it is what has to be repaired if it cannot work on the table as it is now.
 */
static void
start_statement(GuardCall *call, FmgrInfo *flinfo)
{
	ErrorContextCallback context;

	context.callback = trigger_context;
	context.arg = call->trigdata->tg_trigger;
	context.previous = error_context_stack;
	error_context_stack = &context;

	open_statement(call, flinfo);
	call->statement->unfit = call->policy->problem != NULL;
	if (!IsLogicalWorker() &&
		!accepted(call, call->policy->problem, call->policy->problem_attnum))
		report(call);
	if (!accepted(call, judge_kind(call), InvalidAttrNumber))
	{
		call->statement->unfit = true;
		report(call);
	}

	error_context_stack = context.previous;
}

/*
 * A row that comes by logical replication has been judged where it was
 * written, and refusing it would stop the replication.  The mark follows it.
 */
static void
follow(GuardCall *call)
{
	TriggerData *trigdata = call->trigdata;
	FenceRowName *name = &call->statement->new_name;
	TupleTableSlot *new = TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) ?
		trigdata->tg_newslot : trigdata->tg_trigslot;
	FenceName	resource;

	if (TRIGGER_FIRED_FOR_ROW(trigdata->tg_event) &&
		TRIGGER_FIRED_AFTER(trigdata->tg_event) &&
		!TRIGGER_FIRED_BY_DELETE(trigdata->tg_event) &&
		call->policy->marks == FENCE_MARKS_BOTH &&
		token_value(call, new) > 0 && render(call, new, name))
	{
		resource = resource_of(name);
		(void) fence_raise(&resource, token_value(call, new));
	}
}

/*
 * A statement that no guard judges is counted and leaves a line in the
 * server's log.
 */
static Datum
pass_by(const GuardCall *call)
{
	if (first_report(call))
	{
		fence_stats_bypass(RelationGetRelid(call->relation));
		ereport(LOG,
				(errmsg("guard of table \"%s\" bypassed by \"%s\"",
						RelationGetRelationName(call->relation),
						GetUserNameFromId(GetUserId(), false))));
	}
	return unchanged(call->trigdata);
}

/*
 * BEFORE ROW UPDATE, called without the trigger, for an enforcing policy that
 * works on the table.  Reports nothing.
 */
void
fence_guard_update(FenceUpdate *update)
{
	TriggerData *trigdata = update->trigdata;
	GuardCall	call = {0};

	call.trigdata = trigdata;
	call.relation = trigdata->tg_relation;
	call.flinfo = update->flinfo;
	call.update = update;
	update->bypassed = bypass;
	update->tuple = trigdata->tg_newtuple;
	if (bypass)
		(void) pass_by(&call);
	else
	{
		open_statement(&call, update->flinfo);
		update->tuple = before_update(&call);
	}
	update->changed = call.changed;
	update->verdict = call.verdict;
	update->site.relation = call.relation;
	update->site.attnum = call.attnum;
}

/*
 * AFTER ROW UPDATE, without a token column, asked before the row is written:
 * is it sure that the trigger would let it pass?  What is presented for a
 * statement's row is still presented when the statement ends.
 */
bool
fence_guard_passes(const FenceUpdate *update)
{
	GuardCall	call = {0};

	if (bypass)
		return false;
	call.trigdata = update->trigdata;
	call.relation = update->trigdata->tg_relation;
	call.flinfo = update->flinfo;
	call.update = update;
	open_statement(&call, update->flinfo);
	return judge_resources(&call, update->trigdata->tg_trigslot,
						   update->trigdata->tg_newslot);
}

/*
 * The trigger function fence.guard().  Its arguments are the policy, see
 * policy.c.
 */
Datum
fence_guard(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	GuardCall	call = {0};
	Datum		result;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("fence.guard() must be called as trigger")));

	call.trigdata = trigdata;
	call.relation = trigdata->tg_relation;
	call.flinfo = fcinfo->flinfo;
	if (bypass)
		return pass_by(&call);
	result = unchanged(trigdata);
	if (fcinfo->flinfo->fn_extra == NULL)
		start_statement(&call, fcinfo->flinfo);
	else
		open_statement(&call, fcinfo->flinfo);
	if (call.statement->unfit)
		return result;
	if (IsLogicalWorker())
	{
		follow(&call);
		return result;
	}
	if (TRIGGER_FIRED_FOR_STATEMENT(trigdata->tg_event))
		(void) judge_whole_table(&call);
	else
		result = judge_row(&call, result);
	if (call.verdict != NULL)
		report(&call);
	return result;
}

/*
 * Once per backend.
 */
void
fence_guard_init(void)
{
	DefineCustomBoolVariable("pg_fence.bypass",
							 "Lets writes pass guarded tables unjudged.",
							 "For maintenance. Each statement that passes so is counted, and leaves a line in the server's log.",
							 &bypass, false, PGC_SUSET, 0,
							 NULL, NULL, NULL);
	fence_merge_init();
}
