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
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "policy.h"
#include "resource.h"

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
	ListCell   *lc;

	foreach(lc, split_arguments(PG_GETARG_BYTEA_PP(0)))
		accumArrayResult(arguments, CStringGetTextDatum(lfirst(lc)), false,
						 TEXTOID, CurrentMemoryContext);
	PG_RETURN_DATUM(makeArrayResult(arguments, CurrentMemoryContext));
}

/*
 * fence.policy_problem(target regclass, tgargs bytea) returns text
 *
 * What a write on the table would be refused with, whatever its token.
 */
Datum
fence_policy_problem(PG_FUNCTION_ARGS)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(oldcxt);
	PG_TRY();
	{
		Relation	relation = table_open(PG_GETARG_OID(0), AccessShareLock);

		(void) policy_of_bytes(relation, PG_GETARG_BYTEA_PP(1));
		table_close(relation, AccessShareLock);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(oldcxt);
		error = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(oldcxt);
	CurrentResourceOwner = oldowner;

	if (error == NULL)
		PG_RETURN_NULL();
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	PG_RETURN_TEXT_P(cstring_to_text(error->message));
}

/*
 * Is the token in this row above the mark of the row's resource?  Rows of
 * one resource often stand together: the mark of the last one is kept.
 */
static bool
is_above_mark(const FencePolicy *policy, Relation relation,
			  TupleTableSlot *slot, StringInfo name, StringInfo last_name,
			  int64 *last_mark)
{
	FenceName	resource;
	FenceRow	row;
	bool		isnull;
	int64		token = DatumGetInt64(slot_getattr(slot, policy->token_attnum,
												   &isnull));

	if (isnull || fence_policy_resource(policy, relation, slot, name) != NULL)
		return false;
	if (last_name->len != name->len ||
		memcmp(last_name->data, name->data, name->len) != 0)
	{
		resource = fence_name(name->data, name->len);
		fence_row_read(&resource, &row);
		*last_mark = row.mark;
		resetStringInfo(last_name);
		appendBinaryStringInfo(last_name, name->data, name->len);
	}
	return token > *last_mark;
}

/* Leaves the resource's name in name. */
static bool
find_above_mark(const FencePolicy *policy, Relation relation, StringInfo name)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(relation, snapshot, 0, NULL);
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext,
												  "pg_fence audit",
												  ALLOCSET_SMALL_SIZES);
	StringInfoData last_name;
	int64		last_mark = 0;
	bool		found = false;

	initStringInfo(&last_name);
	while (!found && table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		MemoryContext oldcxt = MemoryContextSwitchTo(row_cxt);

		CHECK_FOR_INTERRUPTS();
		found = is_above_mark(policy, relation, slot, name, &last_name,
							  &last_mark);
		MemoryContextSwitchTo(oldcxt);
		MemoryContextReset(row_cxt);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	return found;
}

/*
 * fence.stored_above_mark(target regclass, tgargs bytea) returns text
 */
Datum
fence_stored_above_mark(PG_FUNCTION_ARGS)
{
	List	   *relids = find_all_inheritors(PG_GETARG_OID(0),
												   AccessShareLock, NULL);
	StringInfoData name;
	bool		found = false;
	ListCell   *lc;

	initStringInfo(&name);
	foreach(lc, relids)
	{
		Relation	relation = table_open(lfirst_oid(lc), NoLock);

		if (!found && relation->rd_rel->relkind == RELKIND_RELATION)
		{
			FencePolicy *policy = policy_of_bytes(relation,
												  PG_GETARG_BYTEA_PP(1));

			found = policy->token_column != NULL &&
				find_above_mark(policy, relation, &name);
		}
		table_close(relation, NoLock);
	}
	if (!found)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text_with_len(name.data, name.len));
}
