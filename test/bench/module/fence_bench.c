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

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(bench_mark);
PG_FUNCTION_INFO_V1(bench_empty);
PG_FUNCTION_INFO_V1(bench_compare);

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
