/*-------------------------------------------------------------------------
 *
 * history.c
 *	  Leases that have ended, in table fence.history.
 *
 * A row is written in the transaction that ends the lease, or finds that it
 * has run out, and only if the operator wants it: it is the one write here
 * that leases do not need.  Each row that is written removes some that are
 * too old, so that nobody has to schedule that.
 *
 * IDENTIFICATION
 *	  src/history.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "history.h"
#include "table.h"

/* Rows removed for each one that is written; more than one, to catch up. */
#define PRUNE_ROWS	10

/* Columns of fence.history, in the order of the install script. */
enum
{
	Anum_resource = 1,
	Anum_token,
	Anum_holder,
	Anum_acquired_at,
	Anum_ended_at,
	Anum_ended,
	Natts_history = Anum_ended
};

/* pg_fence.history: minutes that ended leases are kept for; 0: not at all. */
static int	history = 0;

static HeapTuple
form_row(TupleDesc desc, const FenceName *name, const FenceRow *row,
		 FenceLeaseEnd end, TimestampTz ended_at)
{
	static const char *const ends[] = {
		[FENCE_LEASE_RELEASED] = "released",
		[FENCE_LEASE_EXPIRED] = "expired",
		[FENCE_LEASE_TAKEN_OVER] = "expired, taken over",
		[FENCE_LEASE_HANDED_OVER] = "handed over",
		[FENCE_LEASE_BROKEN] = "broken"
	};
	Datum		values[Natts_history];
	bool		nulls[Natts_history] = {0};

	values[Anum_resource - 1] =
		PointerGetDatum(cstring_to_text_with_len(name->data, name->len));
	values[Anum_token - 1] = Int64GetDatum(row->token);
	values[Anum_holder - 1] = CStringGetTextDatum(row->holder);
	values[Anum_acquired_at - 1] = TimestampTzGetDatum(row->acquired_at);
	values[Anum_ended_at - 1] = TimestampTzGetDatum(ended_at);
	values[Anum_ended - 1] = CStringGetTextDatum(ends[end]);
	return heap_form_tuple(desc, values, nulls);
}

/*
 * Removes the oldest rows that are too old.  One that somebody else is
 * removing is passed over, so that nobody waits.
 *
 * Not in a serializable transaction, where this look at the rows of others
 * would count as a dependency.
 */
static void
prune(Relation heap, TimestampTz before)
{
	Relation	index;
	Snapshot	snapshot;
	TupleTableSlot *slot;
	IndexScanDesc scan;
	ScanKeyData key;
	int			left = PRUNE_ROWS;

	if (IsolationIsSerializable())
		return;
	index = index_open(fence_relid("history_ended_at_idx", false),
					   RowExclusiveLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	slot = table_slot_create(heap, NULL);
	ScanKeyInit(&key, 1, BTLessStrategyNumber, F_TIMESTAMPTZ_LT,
				TimestampTzGetDatum(before));
	scan = fence_index_beginscan(heap, index, snapshot, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	while (left-- > 0 && index_getnext_slot(scan, ForwardScanDirection, slot))
		(void) fence_table_delete(heap, &slot->tts_tid);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	index_close(index, RowExclusiveLock);
}

/*
 * The lease in the row has ended.
 */
void
fence_history_add(const FenceName *name, const FenceRow *row,
				  FenceLeaseEnd end, TimestampTz ended_at)
{
	Relation	heap;

	if (history == 0)
		return;
	heap = fence_table_open(fence_relid("history", false), Natts_history,
							RowExclusiveLock);
	prune(heap, GetCurrentTimestamp() - history * USECS_PER_MINUTE);
	CatalogTupleInsert(heap, form_row(RelationGetDescr(heap), name, row, end,
									  ended_at));
	table_close(heap, NoLock);
	CommandCounterIncrement();
}

/*
 * Once per backend.
 */
void
fence_history_init(void)
{
	DefineCustomIntVariable("pg_fence.history",
							"How long fence.timeline() remembers leases that have ended.",
							"0 adds none.",
							&history, 0, 0, 366 * 24 * 60, PGC_SUSET,
							GUC_UNIT_MIN, NULL, NULL, NULL);
}
