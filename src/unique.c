/*-------------------------------------------------------------------------
 *
 * unique.c
 *	  Rows that can only be there once.
 *
 * Storage below idempotency keys and sequences.  Of several transactions
 * that bring in the same key, one inserts the row; the others wait until it
 * has ended, and then find the row, or are the next to try.
 *
 * This is what INSERT ... ON CONFLICT DO NOTHING does, by the same means: a
 * look at the index that also sees what is not committed, then a speculative
 * insertion that is taken back if somebody was faster.  Without the executor
 * it costs less, and no privileges, row security, triggers or search_path of
 * the caller are involved.  There is no MVCC scan for a key that is not there:
 * under SERIALIZABLE it would lock a page of the index, and then keys that
 * only sort near each other, as UUIDv7 ones do, make their transactions fail.
 *
 * IDENTIFICATION
 *	  src/unique.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "executor/executor.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "table.h"
#include "unique.h"

/*
 * Opens the table and its primary key, the only index.
 */
void
fence_unique_open(FenceUnique *table, const char *relname, int natts,
				  RegProcedure equal, LOCKMODE mode)
{
	table->heap = fence_table_open(fence_relid(relname, false), natts, mode);
	table->index = fence_index_open(table->heap, mode);
	table->equal = equal;
	table->slot = table_slot_create(table->heap, NULL);
}

/*
 * The locks are kept, as after any statement.
 */
void
fence_unique_close(FenceUnique *table)
{
	ExecDropSingleTupleTableSlot(table->slot);
	index_close(table->index, NoLock);
	table_close(table->heap, NoLock);
}

static bool
scan_index(FenceUnique *table, Datum key, Snapshot snapshot)
{
	IndexScanDesc scan = fence_index_beginscan(table->heap, table->index,
											   snapshot, 1);
	ScanKeyData scankey;
	bool		found;

	ScanKeyInit(&scankey, 1, BTEqualStrategyNumber, table->equal, key);
	index_rescan(scan, &scankey, 1, NULL, 0);
	found = index_getnext_slot(scan, ForwardScanDirection, table->slot);
	index_endscan(scan);
	return found;
}

/*
 * Puts the row into the slot as the statement's snapshot sees it; false if
 * it sees none.
 */
bool
fence_unique_look_up(FenceUnique *table, Datum key)
{
	return scan_index(table, key, GetActiveSnapshot());
}

/*
 * Puts the latest row into the slot, committed or our own; false if there is
 * none.  Waits for a transaction that has inserted, changed or deleted it;
 * deadlock check, cancel, lock_timeout and statement_timeout are the lock
 * manager's.
 */
bool
fence_unique_find(FenceUnique *table, Datum key)
{
	for (;;)
	{
		SnapshotData dirty;
		TransactionId other;
		ItemPointerData tid;

		InitDirtySnapshot(dirty);
		if (!scan_index(table, key, &dirty))
			return false;
		other = TransactionIdIsValid(dirty.xmin) ? dirty.xmin : dirty.xmax;
		if (!TransactionIdIsValid(other))
			return true;

		/* Keep no buffer pinned while waiting: that would hold up VACUUM. */
		tid = table->slot->tts_tid;
		ExecClearTuple(table->slot);
		if (dirty.speculativeToken != 0)
			SpeculativeInsertionWait(other, dirty.speculativeToken);
		else
			XactLockTableWait(other, table->heap, &tid, XLTW_InsertIndex);
	}
}

/*
 * Puts the row into the slot that this transaction has inserted at tid, as it
 * is now; false if it is gone.  If somebody has rewritten the table in this
 * transaction, it may be another row.
 *
 * This is what the index would lead to, including that a full page is pruned.
 */
bool
fence_unique_fetch_own(FenceUnique *table, ItemPointerData tid)
{
	IndexFetchTableData *fetch;
	bool		again = false;
	bool		found;

	if (ItemPointerGetBlockNumber(&tid) >=
		RelationGetNumberOfBlocks(table->heap))
		return false;
	fetch = table_index_fetch_begin(table->heap);
	found = table_index_fetch_tuple(fetch, &tid, SnapshotSelf, table->slot,
									&again, NULL);
	table_index_fetch_end(fetch);
	return found;
}

/*
 * Does the transaction's snapshot see the row that was found?
 *
 * In READ COMMITTED every look is up to date.  Otherwise it is read once more
 * with that snapshot, and by its address: so SERIALIZABLE learns which row
 * this transaction depends on, and locks nothing else.
 */
bool
fence_unique_visible(FenceUnique *table)
{
	ItemPointerData tid = table->slot->tts_tid;

	return !IsolationUsesXactSnapshot() ||
		table_tuple_fetch_row_version(table->heap, &tid,
									  GetTransactionSnapshot(), table->slot);
}

static bool
insert_index_entry(FenceUnique *table, IndexUniqueCheck check)
{
	IndexInfo  *info = BuildIndexInfo(table->index);
	bool		isnull;
	Datum		key = slot_getattr(table->slot, 1, &isnull);

	return index_insert(table->index, &key, &isnull, &table->slot->tts_tid,
						table->heap, check, false, info);
}

/*
 * Inserts a row that fence_unique_find() has not found, and leaves it in the
 * slot.  False if a twin has come in between: look again.
 *
 * The row is made visible to the rest of the command, which may change it.
 */
bool
fence_unique_insert(FenceUnique *table, const Datum *values, const bool *nulls)
{
	int			natts = RelationGetNumberOfAttributes(table->heap);
	TupleTableSlot *slot = ExecClearTuple(table->slot);
	uint32		token;
	bool		alone;

	memcpy(slot->tts_values, values, natts * sizeof(Datum));
	memcpy(slot->tts_isnull, nulls, natts * sizeof(bool));
	ExecStoreVirtualTuple(slot);

	token = SpeculativeInsertionLockAcquire(GetCurrentTransactionId());
	table_tuple_insert_speculative(table->heap, slot,
								   GetCurrentCommandId(true), 0, NULL, token);
	alone = insert_index_entry(table, UNIQUE_CHECK_PARTIAL);
	table_tuple_complete_speculative(table->heap, slot, token, alone);
	SpeculativeInsertionLockRelease(GetCurrentTransactionId());

	CommandCounterIncrement();
	return alone;
}

/*
 * Puts the tuple in place of the version at tid, and leaves it in the slot.
 * False if that is not the latest one any more: look again.
 */
bool
fence_unique_update(FenceUnique *table, ItemPointer tid, HeapTuple tuple)
{
	bool		needs_entry;

	ExecForceStoreHeapTuple(tuple, table->slot, false);
	if (!fence_tuple_update(table->heap, tid, table->slot,
							GetCurrentCommandId(true), &needs_entry))
		return false;
	if (needs_entry)
		(void) insert_index_entry(table, UNIQUE_CHECK_YES);
	CommandCounterIncrement();
	return true;
}
