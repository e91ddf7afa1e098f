/*-------------------------------------------------------------------------
 *
 * fence_bench.c
 *	  What test/bench needs in C: marks in the stream of instructions, and
 *	  triggers to compare the guard with.
 *
 * IDENTIFICATION
 *	  test/bench/module/fence_bench.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <valgrind/callgrind.h>

#include "access/transam.h"
#include "access/xlog.h"
#include "commands/trigger.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_mark);
PG_FUNCTION_INFO_V1(bench_empty);
PG_FUNCTION_INFO_V1(bench_compare);
PG_FUNCTION_INFO_V1(bench_transition);

/*
 * bench.mark(label text) -> text
 *
 * Has callgrind write down what it has counted since the last mark, under
 * this label, and start from zero.  Returns the label with the write-ahead
 * log's position in bytes and the next transaction id.
 */
Datum
bench_mark(PG_FUNCTION_ARGS)
{
	char	   *label = text_to_cstring(PG_GETARG_TEXT_PP(0));
	uint64		next = U64FromFullTransactionId(ReadNextFullTransactionId());

	CALLGRIND_DUMP_STATS_AT(label);
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%s " UINT64_FORMAT " " UINT64_FORMAT,
											  label,
											  (uint64) GetXLogInsertRecPtr(),
											  next)));
}

/*
 * The cheapest row trigger there can be.
 */
Datum
bench_empty(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;

	return PointerGetDatum(TRIGGER_FIRED_BY_UPDATE(trigdata->tg_event) ?
						   trigdata->tg_newtuple : trigdata->tg_trigtuple);
}

/*
 * The cheapest check of a token in column 2 that a row trigger can make, and
 * no more than that: NULL is not thought of, nor is any other column.
 */
Datum
bench_compare(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	bool		isnull;

	if (DatumGetInt64(slot_getattr(trigdata->tg_newslot, 2, &isnull)) <
		DatumGetInt64(slot_getattr(trigdata->tg_trigslot, 2, &isnull)))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("token is stale")));
	return PointerGetDatum(trigdata->tg_newtuple);
}

/*
 * The cheapest statement trigger that looks at each row that was inserted:
 * whether column 4 is the same as in the row before.
 */
Datum
bench_transition(PG_FUNCTION_ARGS)
{
	TriggerData *trigdata = (TriggerData *) fcinfo->context;
	TupleDesc	desc = RelationGetDescr(trigdata->tg_relation);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(desc, &TTSOpsMinimalTuple);
	Datum		last = 0;
	int			changes = 0;
	bool		isnull;

	while (tuplestore_gettupleslot(trigdata->tg_newtable, true, false, slot))
	{
		Datum		value = slot_getattr(slot, 4, &isnull);

		changes += value != last;
		last = value;
	}
	ExecDropSingleTupleTableSlot(slot);
	if (changes > 1)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("rows of different places")));
	return PointerGetDatum(NULL);
}
