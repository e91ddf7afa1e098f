/*-------------------------------------------------------------------------
 *
 * forget.c
 *	  Removes resources that have not been used for long.
 *
 * Nothing that was ever accepted or issued may be so again, so what is
 * removed is folded into a floor: the mark of every resource that has no
 * row.
 *
 * IDENTIFICATION
 *	  src/forget.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "args.h"
#include "resource.h"

PG_FUNCTION_INFO_V1(fence_forget);

#define IDLE_MAX	(INT64CONST(36525) * USECS_PER_DAY)	/* a century */

/*
 * What is above this stays.  Every writer can present any number for a name
 * of his own; as the floor, it would use up the tokens of all the others.
 */
#define FLOOR_MAX	(INT64CONST(1) << 62)

static bool
is_forgettable(const FenceRow *row, TimestampTz since)
{
	return row->mark <= FLOOR_MAX && row->token <= FLOOR_MAX &&
		row->marked_at < since &&
		(row->holder == NULL || row->expires_at < since) &&
		(!row->released || row->released_at < since);
}

/*
 * Removes one resource, unless it is in use after all.  Returns its mark, 0
 * if it stays.  Waits for nobody: whoever holds a lock is using it.  The
 * takeover lock, which makes commits of the resource's holder fail, is asked
 * for only after the gate and another look.
 */
static int64
forget_one(const FenceName *name, TimestampTz since)
{
	FenceRow	row;

	if (!fence_lock_nowait(name, FENCE_LOCK_GATE))
		return 0;
	fence_row_read(name, &row);
	if (row.found && is_forgettable(&row, since) &&
		fence_lock_nowait(name, FENCE_LOCK_TAKEOVER))
	{
		fence_row_delete(name, &row);
		return Max(row.mark, row.token);
	}
	fence_unlock(name, FENCE_LOCK_GATE);
	return 0;
}

/*
 * Removes up to max_rows resources idle since then; returns how many, and the
 * highest mark among them.
 *
 * The scan takes every version there is, and the snapshot is asked about each:
 * a scan with an MVCC snapshot would leave a SIREAD lock on the whole table,
 * and then every heartbeat could make a serializable transaction fail.
 */
static int64
forget_idle(TimestampTz since, int max_rows, int64 *highest)
{
	Relation	heap = fence_resource_open(RowExclusiveLock);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TableScanDesc scan = table_beginscan(heap, SnapshotAny, 0, NULL);
	TupleTableSlot *slot = table_slot_create(heap, NULL);
	MemoryContext row_cxt = AllocSetContextCreate(CurrentMemoryContext,
												  "pg_fence forget",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(row_cxt);
	int64		count = 0;

	while (count < max_rows &&
		   table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		FenceName	name;
		FenceRow	row;
		int64		mark;

		CHECK_FOR_INTERRUPTS();
		if (!table_tuple_satisfies_snapshot(heap, slot, snapshot))
			continue;
		MemoryContextReset(row_cxt);
		fence_row_of_slot(slot, &name, &row);
		if (name.len == 0 || !is_forgettable(&row, since))
			continue;
		mark = forget_one(&name, since);
		*highest = Max(*highest, mark);
		count += (mark > 0);
	}
	MemoryContextSwitchTo(oldcxt);
	MemoryContextDelete(row_cxt);
	ExecDropSingleTupleTableSlot(slot);
	table_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(heap, NoLock);
	return count;
}

/*
 * fence.forget(idle interval, max_rows integer) returns bigint
 *
 * How many resources were removed.  One entry of the lock table each, until
 * the end of the transaction.
 */
Datum
fence_forget(PG_FUNCTION_ARGS)
{
	int64		idle;
	int32		max_rows;
	int64		count;
	int64		highest = 0;

	fence_prevent_read_only("fence.forget()");
	idle = fence_arg_duration(fcinfo, 0, "idle time", 0, IDLE_MAX);
	max_rows = fence_arg_max_rows(fcinfo, 1);

	count = forget_idle(GetCurrentTimestamp() - idle, max_rows, &highest);
	if (count > 0)
		fence_floor_raise(highest);
	PG_RETURN_INT64(count);
}
