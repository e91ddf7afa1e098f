/*-------------------------------------------------------------------------
 *
 * resource.c
 *	  Storage of pg_fence: rows of fence.resource, and the lock of a resource.
 *
 * A resource has one row (name, last token issued here, high-water mark,
 * lease) and one heavyweight lock tag, which is used in four roles:
 *
 *	presence	AccessShareLock, by whoever has presented a token.  Conflicts
 *				with nobody; lets evict() and people find them in pg_locks.
 *				Its tag differs from that of the others: it also carries
 *				the low bits of the token, so that evict() can tell an older
 *				holder from the present one.
 *	gate		ShareUpdateExclusiveLock, by every writer of the row.  Excludes
 *				other writers, but no committer.
 *	takeover	ExclusiveLock, by a gate holder that has decided to raise the
 *				mark, before it writes.
 *	commit		RowShareLock, taken without waiting before a transaction that
 *				presented a token commits.  Excludes takeovers only.
 *
 * Because every writer of a row holds its gate until its transaction ends,
 * a row has at most one uncommitted version, and whoever holds the gate and
 * then reads with a new snapshot sees the last word.  That is why rows are
 * written straight on the version just read, whatever the isolation level:
 * under REPEATABLE READ an unrelated heartbeat must not become 40001.
 *
 * Rows are reached without the executor: no privileges, row security or
 * search_path of the caller are involved.
 *
 * IDENTIFICATION
 *	  src/resource.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/indexing.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

#include "attempt.h"
#include "compat.h"
#include "resource.h"
#include "table.h"

/*
 * Core uses the classes 1 and 2 of advisory lock tags for its SQL functions;
 * these are ours (objsubid in pg_locks).
 */
#define FENCE_LOCK_CLASS		0x70F
#define FENCE_PRESENCE_CLASS	0x4000	/* and above, up to the next power */
#define FENCE_PRESENCE_BITS		0x3FFF

/* No resource has this name; its row holds the floor. */
#define FLOOR_NAME				fence_name("", 0)

/* Columns of fence.resource, in the order of the install script. */
enum
{
	Anum_name = 1,
	Anum_token,
	Anum_mark,
	Anum_mark_holder,
	Anum_marked_at,
	Anum_holder,
	Anum_request_id,
	Anum_acquired_at,
	Anum_expires_at,
	Anum_released_at,
	Anum_renewals,
	Anum_home,
	Anum_lease,
	Anum_lease_value,
	Anum_acquisitions,
	Anum_takeovers,
	Anum_hold_total,
	Anum_hold_max,
	Natts_resource = Anum_hold_max
};

/*
 * The table as it was opened last, its files, and a number that changes
 * whenever it may have been given other ones (backend).
 */
static Oid	resource_relid = InvalidOid;
static FenceFiles resource_files;
static uint64 definition = 0;

/*
 * Where a row was found last: the start of its HOT chain, and the buffer that
 * held it.  Both are hints.  The row may have moved since, and its place may
 * be another one's now, so that what is found there must have the name.
 */
typedef struct RowPlace
{
	uint64		key;			/* of the name */
	ItemPointerData start;
	Buffer		buffer;			/* InvalidBuffer: none is known */
} RowPlace;

/* One for each remainder of the keys (backend). */
static RowPlace places[1024];

/*
 * Makes a FenceName of valid bytes; the bytes stay the caller's.
 */
FenceName
fence_name(const char *data, int len)
{
	FenceName	name;

	name.data = data;
	name.len = len;
	name.key = hash_bytes_extended((const unsigned char *) data, len, 0);
	return name;
}

static LOCKTAG
lock_tag(const FenceName *name)
{
	LOCKTAG		tag;

	SET_LOCKTAG_ADVISORY(tag, MyDatabaseId, (uint32) (name->key >> 32),
						 (uint32) name->key, FENCE_LOCK_CLASS);
	return tag;
}

static LOCKTAG
presence_tag(const FenceName *name, int64 token)
{
	LOCKTAG		tag = lock_tag(name);

	tag.locktag_field4 = FENCE_PRESENCE_CLASS |
		(uint16) (token & FENCE_PRESENCE_BITS);
	return tag;
}

/*
 * Shows that this transaction has presented the token.
 */
void
fence_lock_presence(const FenceName *name, int64 token)
{
	LOCKTAG		tag = presence_tag(name, token);

	(void) LockAcquire(&tag, AccessShareLock, false, false);
}

/*
 * Process ids of the backends whose open transaction stands on an older token
 * of the resource than the present one, which is the mark, or the token of
 * whoever is about to raise it.  Counts prepared transactions apart.
 */
List *
fence_older_presenters(const FenceName *name, int64 mark, int *prepared)
{
	LOCKTAG		change = lock_tag(name);
	LOCKTAG		current = presence_tag(name, mark);
	LockData   *locks = GetLockStatusData();
	List	   *newest = NIL;
	List	   *same = NIL;
	List	   *others = NIL;
	int			i;

	*prepared = 0;
	for (i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];
		const LOCKTAG *tag = &lock->locktag;

		if (tag->locktag_type != LOCKTAG_ADVISORY ||
			tag->locktag_field1 != change.locktag_field1 ||
			tag->locktag_field2 != change.locktag_field2 ||
			tag->locktag_field3 != change.locktag_field3)
			continue;
		if (tag->locktag_field4 == change.locktag_field4)
		{
			if (lock->holdMask & LOCKBIT_ON(FENCE_LOCK_TAKEOVER))
				newest = lappend_int(newest, lock->pid);
		}
		else if ((tag->locktag_field4 & FENCE_PRESENCE_CLASS) == 0)
			continue;
		else if (tag->locktag_field4 == current.locktag_field4)
			same = list_append_unique_int(same, lock->pid);
		else if (lock->pid == 0)
			(*prepared)++;
		else
			others = list_append_unique_int(others, lock->pid);
	}
	if (newest == NIL)
		return list_difference_int(others, same);
	return list_difference_int(list_concat_unique_int(others, same), newest);
}

/*
 * Waits for the lock; deadlock check, cancel, lock_timeout and
 * statement_timeout are the lock manager's.
 */
void
fence_lock(const FenceName *name, LOCKMODE mode)
{
	LOCKTAG		tag = lock_tag(name);

	(void) LockAcquire(&tag, mode, false, false);
}

bool
fence_lock_nowait(const FenceName *name, LOCKMODE mode)
{
	LOCKTAG		tag = lock_tag(name);

	return LockAcquire(&tag, mode, false, true) != LOCKACQUIRE_NOT_AVAIL;
}

typedef struct LockRequest
{
	const FenceName *name;
	LOCKMODE	mode;
} LockRequest;

static bool
lock_action(void *arg)
{
	LockRequest *request = arg;

	fence_lock(request->name, request->mode);
	return true;
}

/*
 * What a subtransaction has locked belongs to its parent when it has ended,
 * and fence_unlock() gives back only what belongs to the present owner, which
 * may be a portal.
 */
static void
adopt_lock(const FenceName *name, LOCKMODE mode)
{
	ResourceOwner owner = CurrentResourceOwner;

	fence_lock(name, mode);		/* is ours, and need not be waited for */
	CurrentResourceOwner = CurTransactionResourceOwner;
	fence_unlock(name, mode);
	CurrentResourceOwner = owner;
}

/*
 * Queues up for the lock, for so many milliseconds at most.  Cancel and the
 * user's own lock_timeout, where that is shorter, raise as usual.
 *
 * The lock manager ends a wait only by an error, so it takes a
 * subtransaction to survive that.
 */
bool
fence_lock_within(const FenceName *name, LOCKMODE mode, int ms)
{
	LockRequest request = {name, mode};
	int			nestlevel;
	bool		got;
	ErrorData  *error;

	if (LockTimeout > 0 && LockTimeout <= ms)
	{
		fence_lock(name, mode);
		return true;
	}
	nestlevel = NewGUCNestLevel();
	(void) set_config_option("lock_timeout", psprintf("%d", ms),
							 PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
	got = fence_attempt(lock_action, &request, ERRCODE_LOCK_NOT_AVAILABLE,
						&error);
	AtEOXact_GUC(true, nestlevel);
	if (got)
		adopt_lock(name, mode);
	return got;
}

bool
fence_lock_held(const FenceName *name, LOCKMODE mode)
{
	LOCKTAG		tag = lock_tag(name);

	return fence_lock_held_by_me(&tag, mode);
}

/*
 * Gives back one fence_lock() of this mode.  Only for a lock under which
 * nothing was written.
 */
void
fence_unlock(const FenceName *name, LOCKMODE mode)
{
	LOCKTAG		tag = lock_tag(name);

	(void) LockRelease(&tag, mode, false);
}

/*
 * Is there a transaction still running, or prepared, that holds the lock in
 * a conflicting mode?  False for one that has ended and has its locks still
 * to release, and for one that only waits.
 */
bool
fence_lock_contested(const FenceName *name, LOCKMODE mode)
{
	LOCKTAG		tag = lock_tag(name);
	int			count;

	(void) GetLockConflicts(&tag, mode, &count);
	return count > 0;
}

/*
 * Is there the table?  The transaction may have dropped the extension.
 */
bool
fence_resource_exists(void)
{
	return OidIsValid(fence_relid("resource", true));
}

Relation
fence_resource_open(LOCKMODE mode)
{
	resource_relid = fence_relid("resource", false);
	return fence_table_open(resource_relid, Natts_resource, mode);
}

static char *
text_of(const Datum *values, const bool *nulls, int attnum)
{
	return nulls[attnum - 1] ? NULL : TextDatumGetCString(values[attnum - 1]);
}

static int64
int64_of(const Datum *values, const bool *nulls, int attnum)
{
	return nulls[attnum - 1] ? 0 : DatumGetInt64(values[attnum - 1]);
}

static int64
usecs_of(const Datum *values, const bool *nulls, int attnum)
{
	return nulls[attnum - 1] ? 0 :
		DatumGetIntervalP(values[attnum - 1])->time;
}

/* Reads the columns; char * ones are palloc'd, missing ones are NULL or 0. */
static void
row_deform(HeapTuple tuple, TupleDesc desc, FenceRow *row)
{
	Datum		values[Natts_resource];
	bool		nulls[Natts_resource];

	heap_deform_tuple(tuple, desc, values, nulls);
	row->found = true;
	row->tuple = tuple;
	row->token = int64_of(values, nulls, Anum_token);
	row->mark = int64_of(values, nulls, Anum_mark);
	row->mark_holder = text_of(values, nulls, Anum_mark_holder);
	row->marked_at = int64_of(values, nulls, Anum_marked_at);
	row->holder = text_of(values, nulls, Anum_holder);
	row->request_id = text_of(values, nulls, Anum_request_id);
	row->acquired_at = int64_of(values, nulls, Anum_acquired_at);
	row->expires_at = int64_of(values, nulls, Anum_expires_at);
	row->released = !nulls[Anum_released_at - 1];
	row->released_at = int64_of(values, nulls, Anum_released_at);
	row->renewals = int64_of(values, nulls, Anum_renewals);
	row->home = int64_of(values, nulls, Anum_home);
	row->lease = text_of(values, nulls, Anum_lease);
	row->lease_value = text_of(values, nulls, Anum_lease_value);
	row->acquisitions = int64_of(values, nulls, Anum_acquisitions);
	row->takeovers = int64_of(values, nulls, Anum_takeovers);
	row->hold_total = usecs_of(values, nulls, Anum_hold_total);
	row->hold_max = usecs_of(values, nulls, Anum_hold_max);
}

/*
 * The row in a slot of the table.
 */
void
fence_row_of_slot(TupleTableSlot *slot, FenceName *name, FenceRow *row)
{
	bool		isnull;
	char	   *data = TextDatumGetCString(slot_getattr(slot, Anum_name,
														&isnull));

	memset(row, 0, sizeof(FenceRow));
	row_deform(ExecCopySlotHeapTuple(slot), slot->tts_tupleDescriptor, row);
	*name = fence_name(data, strlen(data));
}

static bool
has_name(HeapTuple tuple, TupleDesc desc, const FenceName *name)
{
	bool		isnull;
	text	   *value = DatumGetTextPP(heap_getattr(tuple, Anum_name, desc,
													&isnull));

	return (int) VARSIZE_ANY_EXHDR(value) == name->len &&
		memcmp(VARDATA_ANY(value), name->data, name->len) == 0;
}

/* A version that somebody may be changing is not the last one for certain. */
static void
note_version(Relation heap, Buffer buffer, FenceRow *row)
{
	HeapTupleHeader header = row->tuple->t_data;

	if ((header->t_infomask & HEAP_XMAX_INVALID) == 0)
		return;
	resource_files = FENCE_FILES(heap);
	row->version.buffer = buffer;
	row->version.tid = row->tuple->t_self;
	row->version.xmin = HeapTupleHeaderGetRawXmin(header);
	row->version.definition = definition;
}

/*
 * Reads the version that a snapshot shows, if it has the name, from the row
 * that starts in this place of a pinned page; returns whether it did.
 *
 * In a serializable transaction the search itself runs with SnapshotAny and
 * each version is tested here: a search with an MVCC snapshot would leave
 * SIREAD locks, and then every heartbeat would be a conflict that can end in
 * 40001.
 */
static bool
read_version(Relation heap, Buffer buffer, ItemPointerData place,
			 const FenceName *name, Snapshot snapshot, FenceRow *row,
			 bool *all_dead)
{
	bool		test_each = IsolationIsSerializable();
	bool		first = true;
	bool		found;
	HeapTupleData version;

	/* As every index scan does; else nobody would, and rows would move. */
	heap_page_prune_opt(heap, buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	do
	{
		found = heap_hot_search_buffer(&place, heap, buffer,
									   test_each ? SnapshotAny : snapshot,
									   &version, all_dead, first);
		first = false;
	} while (found && test_each &&
			 !HeapTupleSatisfiesVisibility(&version, snapshot, buffer));
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);

	if (!found || !has_name(&version, RelationGetDescr(heap), name))
		return false;
	row_deform(heap_copytuple(&version), RelationGetDescr(heap), row);
	note_version(heap, buffer, row);
	return true;
}

/*
 * Finds the row by the index, and notes its place.  Entries of rows that are
 * dead to everybody are marked, as in any index scan.
 */
static void
search_row(Relation heap, const FenceName *name, Snapshot snapshot,
		   FenceRow *row, RowPlace *place)
{
	Relation	index = fence_index_open(heap, AccessShareLock);
	IndexScanDesc scan;
	ScanKeyData key;
	ItemPointer tid;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_TEXTEQ,
				PointerGetDatum(cstring_to_text_with_len(name->data,
														 name->len)));
	scan = fence_index_beginscan(heap, index, IsolationIsSerializable() ?
								 SnapshotAny : snapshot, 1);
	index_rescan(scan, &key, 1, NULL, 0);
	while (!row->found &&
		   (tid = index_getnext_tid(scan, ForwardScanDirection)) != NULL)
	{
		Buffer		buffer;
		bool		all_dead;

		buffer = ReadBuffer(heap, ItemPointerGetBlockNumber(tid));
		if (read_version(heap, buffer, *tid, name, snapshot, row, &all_dead))
		{
			place->key = name->key;
			place->start = *tid;
			place->buffer = buffer;
		}
		else
			scan->kill_prior_tuple = all_dead && !scan->xactStartedInRecovery;
		ReleaseBuffer(buffer);
	}
	index_endscan(scan);
	index_close(index, AccessShareLock);
}

/*
 * Finds the row where it was last, if its page is still in the same buffer.
 */
static bool
revisit_row(Relation heap, const FenceName *name, Snapshot snapshot,
			FenceRow *row, const RowPlace *place)
{
	if (place->key != name->key || !BufferIsValid(place->buffer) ||
		!ReadRecentBuffer(FENCE_FILES(heap), MAIN_FORKNUM,
						  ItemPointerGetBlockNumber(&place->start),
						  place->buffer))
		return false;
	(void) read_version(heap, place->buffer, place->start, name, snapshot,
						row, NULL);
	ReleaseBuffer(place->buffer);
	return row->found;
}

/*
 * Finds the row as of a snapshot; *row is zero if there is none.
 *
 * At most one version of all rows with this name is shown by a snapshot, so
 * that one found in its old place is the one that the index would lead to.
 */
static void
find_row(const FenceName *name, Snapshot snapshot, FenceRow *row)
{
	Relation	heap = fence_resource_open(AccessShareLock);
	RowPlace   *place = &places[name->key % lengthof(places)];

	memset(row, 0, sizeof(FenceRow));
	if (!revisit_row(heap, name, snapshot, row, place))
		search_row(heap, name, snapshot, row, place);
	table_close(heap, AccessShareLock);
}

/*
 * Reads the row as of a snapshot.  Where there is none, the mark is the
 * floor: what forget() has removed is never accepted or issued again.
 */
void
fence_row_read_at(const FenceName *name, Snapshot snapshot, FenceRow *row)
{
	FenceName	floor_name = FLOOR_NAME;
	FenceRow	floor;

	find_row(name, snapshot, row);
	if (row->found)
		return;
	find_row(&floor_name, snapshot, &floor);
	row->mark = floor.mark;
	row->marked_at = floor.marked_at;
}

/*
 * Reads the row as it is now, whatever the isolation level.  What was read
 * stays true only while the caller holds the gate.
 */
void
fence_row_read(const FenceName *name, FenceRow *row)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());

	fence_row_read_at(name, snapshot, row);
	UnregisterSnapshot(snapshot);
}

/* Is this version in the pinned page, and has nobody tried to change it? */
static bool
is_last_version(Page page, const FenceVersion *version)
{
	OffsetNumber offset = ItemPointerGetOffsetNumber(&version->tid);
	HeapTupleHeader header;
	ItemId		item;

	if (offset > PageGetMaxOffsetNumber(page))
		return false;
	item = PageGetItemId(page, offset);
	if (!ItemIdIsNormal(item))
		return false;
	header = (HeapTupleHeader) PageGetItem(page, item);
	return HeapTupleHeaderGetRawXmin(header) == version->xmin &&
		(header->t_infomask & HEAP_XMAX_INVALID) != 0;
}

/*
 * Is the version that was read before still the last one?  Only for somebody
 * who holds the commit lock, because otherwise the next one may be written
 * right now.  Says no when in doubt.
 *
 * The page is looked at without a lock on the table.  Should the table have
 * been given other files meanwhile, then nobody could write there before we
 * were sent word of that; and whoever raised the mark since has released the
 * takeover lock before we got ours, so the word has arrived.
 */
bool
fence_row_unchanged(const FenceVersion *version)
{
	bool		unchanged;

	AcceptInvalidationMessages();
	if (!BufferIsValid(version->buffer) ||
		version->definition != definition ||
		!ReadRecentBuffer(resource_files, MAIN_FORKNUM,
						  ItemPointerGetBlockNumber(&version->tid),
						  version->buffer))
		return false;
	LockBuffer(version->buffer, BUFFER_LOCK_SHARE);
	unchanged = is_last_version(BufferGetPage(version->buffer), version);
	UnlockReleaseBuffer(version->buffer);
	return unchanged;
}

static void
set_text(Datum *values, bool *nulls, int attnum, const char *value)
{
	nulls[attnum - 1] = (value == NULL);
	if (value != NULL)
		values[attnum - 1] = CStringGetTextDatum(value);
}

/*
 * A duration of so many microseconds.
 */
Datum
fence_interval(int64 usecs)
{
	Interval   *interval = palloc0(sizeof(Interval));

	interval->time = usecs;
	return IntervalPGetDatum(interval);
}

static HeapTuple
row_form(TupleDesc desc, const FenceName *name, const FenceRow *row)
{
	Datum		values[Natts_resource] = {0};
	bool		nulls[Natts_resource] = {0};

	values[Anum_name - 1] =
		PointerGetDatum(cstring_to_text_with_len(name->data, name->len));
	values[Anum_token - 1] = Int64GetDatum(row->token);
	values[Anum_mark - 1] = Int64GetDatum(row->mark);
	set_text(values, nulls, Anum_mark_holder, row->mark_holder);
	values[Anum_marked_at - 1] = TimestampTzGetDatum(row->marked_at);
	set_text(values, nulls, Anum_holder, row->holder);
	set_text(values, nulls, Anum_request_id, row->request_id);
	values[Anum_acquired_at - 1] = TimestampTzGetDatum(row->acquired_at);
	nulls[Anum_acquired_at - 1] = (row->holder == NULL);
	values[Anum_expires_at - 1] = TimestampTzGetDatum(row->expires_at);
	nulls[Anum_expires_at - 1] = (row->holder == NULL);
	values[Anum_released_at - 1] = TimestampTzGetDatum(row->released_at);
	nulls[Anum_released_at - 1] = !row->released;
	values[Anum_renewals - 1] = Int64GetDatum(row->renewals);
	values[Anum_home - 1] = Int64GetDatum(row->home);
	nulls[Anum_home - 1] = (row->holder == NULL);
	set_text(values, nulls, Anum_lease, row->lease);
	set_text(values, nulls, Anum_lease_value, row->lease_value);
	values[Anum_acquisitions - 1] = Int64GetDatum(row->acquisitions);
	values[Anum_takeovers - 1] = Int64GetDatum(row->takeovers);
	values[Anum_hold_total - 1] = fence_interval(row->hold_total);
	values[Anum_hold_max - 1] = fence_interval(row->hold_max);

	return heap_form_tuple(desc, values, nulls);
}

/*
 * Writes the row in place of the version it was read from, or as a new one.
 * The caller holds the gate, and the takeover lock if the mark rises.
 *
 * The change is made visible to the rest of the command, because acquire()
 * and check() may stand in one statement.
 */
void
fence_row_write(const FenceName *name, FenceRow *row)
{
	Relation	heap = fence_resource_open(RowExclusiveLock);
	HeapTuple	tuple = row_form(RelationGetDescr(heap), name, row);

	Assert(fence_lock_held(name, FENCE_LOCK_GATE));

	if (row->found)
		CatalogTupleUpdate(heap, &row->tuple->t_self, tuple);
	else
		CatalogTupleInsert(heap, tuple);
	table_close(heap, NoLock);

	row->found = true;
	row->tuple = tuple;
	CommandCounterIncrement();
}

/*
 * Removes the row.  The caller holds gate and takeover lock, and raises the
 * floor in the same transaction.
 */
void
fence_row_delete(const FenceName *name, const FenceRow *row)
{
	Relation	heap = fence_resource_open(RowExclusiveLock);

	Assert(fence_lock_held(name, FENCE_LOCK_TAKEOVER));

	CatalogTupleDelete(heap, &row->tuple->t_self);
	table_close(heap, NoLock);
	CommandCounterIncrement();
}

/*
 * Raises the floor to a mark, if it is below.  Waits for others who do that.
 */
void
fence_floor_raise(int64 mark)
{
	FenceName	name = FLOOR_NAME;
	FenceRow	row;

	fence_lock(&name, FENCE_LOCK_GATE);
	fence_row_read(&name, &row);
	if (mark <= row.mark)
		return;
	row.mark = mark;
	row.marked_at = GetCurrentTimestamp();
	fence_row_write(&name, &row);
}

/*
 * Is the token too old?  Without a row, the floor itself is too: it was the
 * token of a resource that may have been this one.
 */
bool
fence_row_outranks(const FenceRow *row, int64 token)
{
	return token < row->mark || (!row->found && token == row->mark);
}

/*
 * Identity of this database.  A lease counts only where it was granted: a
 * dump that is restored elsewhere brings its leases along as expired ones,
 * because the holder goes on working with the original.
 */
int64
fence_home(void)
{
	static int64 home = 0;

	if (home == 0)
	{
		uint64		parts[2];

		parts[0] = GetSystemIdentifier();
		parts[1] = MyDatabaseId;
		home = (int64) hash_bytes_extended((const unsigned char *) parts,
										   sizeof(parts), 0);
	}
	return home;
}

/*
 * Does the lease keep others out at this instant?
 */
bool
fence_lease_live(const FenceRow *row, TimestampTz now)
{
	return row->holder != NULL && !row->released &&
		row->expires_at > now && row->home == fence_home();
}

/*
 * The same, for a transaction about to commit: a release that this very
 * transaction made takes effect with its commit, not before.  Until then
 * its gate keeps everybody else from acquiring.
 */
bool
fence_lease_live_at_commit(const FenceRow *row, TimestampTz now)
{
	FenceRow	unreleased = *row;

	if (row->released &&
		TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(row->tuple->t_data)))
		unreleased.released = false;
	return fence_lease_live(&unreleased, now);
}

static void
relcache_callback(Datum arg, Oid relid)
{
	if (!OidIsValid(relid) || relid == resource_relid)
		definition++;
}

/*
 * Once per backend.
 */
void
fence_resource_init(void)
{
	CacheRegisterRelcacheCallback(relcache_callback, (Datum) 0);
}
