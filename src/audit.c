/*-------------------------------------------------------------------------
 *
 * audit.c
 *	  What fence.audit() and the views cannot say in SQL.
 *
 * IDENTIFICATION
 *	  src/audit.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "attempt.h"
#include "policy.h"
#include "resource.h"
#include "row_name.h"

PG_FUNCTION_INFO_V1(fence_trigger_arguments);
PG_FUNCTION_INFO_V1(fence_policy_problem);
PG_FUNCTION_INFO_V1(fence_stored_above_mark);

/* Takes pg_trigger.tgargs apart: a list of char *. */
static List *
split_arguments(bytea *tgargs)
{
	const char *next = VARDATA_ANY(tgargs);
	const char *end = next + VARSIZE_ANY_EXHDR(tgargs);
	List	   *arguments = NIL;

	while (next < end)
	{
		int			len = strnlen(next, end - next);

		pg_verifymbstr(next, len, false);
		arguments = lappend(arguments, pnstrdup(next, len));
		next += len + 1;
	}
	return arguments;
}

static FencePolicy *
policy_of_bytes(Relation relation, bytea *tgargs)
{
	List	   *arguments = split_arguments(tgargs);
	char	  **array = palloc(Max(list_length(arguments), 1) * sizeof(char *));
	ListCell   *lc;
	int			count = 0;

	foreach(lc, arguments)
		array[count++] = lfirst(lc);
	return fence_policy_of_arguments(relation, array, count);
}

/*
 * fence.trigger_arguments(tgargs bytea) returns text[]
 */
Datum
fence_trigger_arguments(PG_FUNCTION_ARGS)
{
	ArrayBuildState *arguments = initArrayResult(TEXTOID, CurrentMemoryContext,
												 true);
	ListCell   *argument;
	ListCell   *part;

	foreach(argument, split_arguments(PG_GETARG_BYTEA_PP(0)))
	{
		foreach(part, fence_policy_parts(lfirst(argument)))
			accumArrayResult(arguments, CStringGetTextDatum(lfirst(part)),
							 false, TEXTOID, CurrentMemoryContext);
	}
	PG_RETURN_DATUM(makeArrayResult(arguments, CurrentMemoryContext));
}

typedef struct PolicyQuestion
{
	Oid			relid;
	bytea	   *tgargs;
	const char *problem;		/* the answer, NULL if there is none */
} PolicyQuestion;

static bool
find_problem(void *arg)
{
	PolicyQuestion *question = arg;
	Relation	relation = try_table_open(question->relid, AccessShareLock);
	FencePolicy *policy;

	/* dropped since the catalog was read */
	if (relation == NULL)
		return true;
	policy = policy_of_bytes(relation, question->tgargs);
	if (policy->problem != NULL)
		question->problem = policy->problem->message;
	/* keep the lock: fence.audit() goes on to the partitions */
	table_close(relation, NoLock);
	return true;
}

/*
 * fence.policy_problem(target regclass, tgargs bytea) returns text
 *
 * What a write on the table would be refused with, whatever its token; NULL
 * if it would not, or if there is no such table any more.  Arguments that
 * cannot even be read raise 22023.
 */
Datum
fence_policy_problem(PG_FUNCTION_ARGS)
{
	PolicyQuestion question = {0};
	ErrorData  *error;

	question.relid = PG_GETARG_OID(0);
	question.tgargs = PG_GETARG_BYTEA_PP(1);
	if (!fence_attempt(find_problem, &question,
					   ERRCODE_INVALID_PARAMETER_VALUE, &error))
		question.problem = error->message;
	if (question.problem == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(question.problem));
}

/* The resource whose mark was read last: rows of one often stand together. */
typedef struct LastMark
{
	StringInfoData name;
	int64		mark;
} LastMark;

static int64
mark_of(const StringInfoData *name, LastMark *last)
{
	FenceName	resource;
	FenceRow	row;

	if (last->name.len != name->len ||
		memcmp(last->name.data, name->data, name->len) != 0)
	{
		resource = fence_name(name->data, name->len);
		fence_row_read(&resource, &row);
		last->mark = row.mark;
		resetStringInfo(&last->name);
		appendBinaryStringInfo(&last->name, name->data, name->len);
	}
	return last->mark;
}

static void
judge_stored_row(const FencePolicy *policy, Relation relation,
				 TupleTableSlot *slot, LastMark *last, ReturnSetInfo *rsinfo)
{
	FenceRowName name;
	const StringInfoData *text;
	AttrNumber	attnum;
	Datum		values[2];
	bool		nulls[2] = {false, false};

	values[1] = slot_getattr(slot, policy->token_attnum, &nulls[1]);
	if (nulls[1])
		return;
	fence_row_name_init(&name, policy, CurrentMemoryContext,
						palloc0(policy->nparts * sizeof(Datum)));
	if (fence_row_name_set(&name, relation, slot, &attnum) != NULL)
		return;
	text = fence_row_name_text(&name);
	if (DatumGetInt64(values[1]) <= mark_of(text, last))
		return;
	values[0] = PointerGetDatum(cstring_to_text_with_len(text->data,
														 text->len));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

static void
judge_stored_rows(const FencePolicy *policy, Relation relation,
				  ReturnSetInfo *rsinfo)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(relation, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext,
												  "pg_fence audit",
												  ALLOCSET_SMALL_SIZES);
	LastMark	last;

	initStringInfo(&last.name);
	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(row_cxt);

		CHECK_FOR_INTERRUPTS();
		judge_stored_row(policy, relation, slot, &last, rsinfo);
		MemoryContextSwitchTo(oldcxt);
		MemoryContextReset(row_cxt);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
}

/*
 * fence.stored_above_mark(target regclass, tgargs bytea)
 *		returns table (resource text, token bigint)
 *
 * The rows of the table, partitions included, that hold a token above the
 * mark of their resource.  The rows of another session's temporary table
 * cannot be read, and go away with that session.
 */
Datum
fence_stored_above_mark(PG_FUNCTION_ARGS)
{
	Oid			target = PG_GETARG_OID(0);
	Relation	parent;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	parent = try_table_open(target, AccessShareLock);
	/* dropped since its triggers were read */
	if (parent == NULL)
		PG_RETURN_VOID();
	table_close(parent, NoLock);
	foreach(lc, find_all_inheritors(target, AccessShareLock, NULL))
	{
		Relation	relation = try_table_open(lfirst_oid(lc), NoLock);

		/* dropped before we had the lock */
		if (relation == NULL)
			continue;
		if (relation->rd_rel->relkind == RELKIND_RELATION &&
			!RELATION_IS_OTHER_TEMP(relation))
		{
			FencePolicy *policy = policy_of_bytes(relation,
												  PG_GETARG_BYTEA_PP(1));

			if (policy->token_column != NULL && policy->problem == NULL)
				judge_stored_rows(policy, relation,
								  (ReturnSetInfo *) fcinfo->resultinfo);
		}
		table_close(relation, NoLock);
	}
	PG_RETURN_VOID();
}
