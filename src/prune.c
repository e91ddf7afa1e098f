/*-------------------------------------------------------------------------
 *
 * prune.c
 *	  Removing claims that have expired.
 *
 * Nobody has to schedule anything: now and then a fresh claim looks at a page
 * of the table and deletes the expired rows there.  Rows that come together
 * expire together, so where there is one, the next pages are worth a look,
 * too; where there is none, the next look goes to a random page.  A look costs
 * one page, whatever the size of the table, and the rows that have expired
 * and are still there settle at a small part of it.
 *
 * The look is taken right before the commit.  Whoever claims one of the keys
 * that it removes waits for this transaction: so that is no wait for whatever
 * else the transaction does, and cannot become a deadlock, because from then
 * on the transaction itself waits for nobody.  For the same reason there is
 * none before PREPARE.
 *
 * There is no index on the time of expiry.  A btree would cost every claim as
 * much as the one that it needs.  The summaries of a BRIN index only ever get
 * wider: once VACUUM has given the room of old rows to new ones, each of
 * them covers all times and tells nothing.
 *
 * A row that somebody else has locked or is deleting is passed over, so
 * pruning waits for nobody, and any number of sessions may prune.
 *
 * IDENTIFICATION
 *	  src/prune.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/xact.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "args.h"
#include "claim_row.h"
#include "prune.h"
#include "table.h"

PG_FUNCTION_INFO_V1(fence_prune);

/* One of so many fresh claims looks for expired rows. */
#define CLAIMS_PER_LOOK		8

/* It deletes at most so many, on at most so many pages. */
#define ROWS_PER_LOOK		64
#define PAGES_PER_LOOK		4

/* The page to look at next, InvalidBlockNumber for any (backend). */
static BlockNumber next_block = InvalidBlockNumber;

/* Fresh claims before the next look, -1 if there was none yet (backend). */
static int	claims_left = -1;

/* How many looks are to be taken before the commit (transaction). */
static uint32 looks = 0;

/*
 * Finds the rows of a page that may go; returns how many.  What this
 * transaction has claimed itself may still have to be completed, however late
 * it is.
 *
 * The page is read here because a scan would do too much.  It would take
 * longer for each row; and one with an MVCC snapshot would leave SIREAD locks,
 * so that rows that nobody misses would make transactions fail.
 */
static int
find_expired(Relation heap, BlockNumber block, TimestampTz now,
			 Snapshot snapshot, ItemPointerData tids[MaxHeapTuplesPerPage])
{
	Buffer		buffer = ReadBuffer(heap, block);
	Page		page = BufferGetPage(buffer);
	int			count = 0;
	OffsetNumber last;
	OffsetNumber offset;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	last = PageGetMaxOffsetNumber(page);
	for (offset = FirstOffsetNumber; offset <= last; offset++)
	{
		ItemId		item = PageGetItemId(page, offset);
		HeapTupleData tuple;

		if (!ItemIdIsNormal(item))
			continue;
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		tuple.t_tableOid = RelationGetRelid(heap);
		ItemPointerSet(&tuple.t_self, block, offset);
		if (fence_claim_row_expired(&tuple, RelationGetDescr(heap), now) &&
			HeapTupleSatisfiesVisibility(&tuple, snapshot, buffer) &&
			!TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple.t_data)))
			tids[count++] = tuple.t_self;
	}
	UnlockReleaseBuffer(buffer);
	return count;
}

/*
 * Deletes up to max_rows expired rows of a page; returns how many.
 */
static int64
prune_page(FenceUnique *claims, BlockNumber block, TimestampTz now,
		   Snapshot snapshot, int64 max_rows)
{
	ItemPointerData tids[MaxHeapTuplesPerPage];
	int			expired = find_expired(claims->heap, block, now, snapshot,
									   tids);
	int64		count = 0;
	int			i;

	for (i = 0; i < expired && count < max_rows; i++)
	{
		if (fence_table_delete(claims->heap, &tids[i]))
			count++;
	}
	return count;
}

/*
 * Prunes pages, from the one on where the last look ended, until max_rows are
 * deleted or max_blocks read, or, if that is wanted, a page has nothing to
 * delete.
 */
static int64
prune(FenceUnique *claims, TimestampTz now, int64 max_rows,
	  BlockNumber max_blocks, bool stop_at_none)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(claims->heap);
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	int64		total = 0;

	max_blocks = Min(max_blocks, blocks);
	if (next_block == InvalidBlockNumber && blocks > 0)
		next_block = pg_prng_uint64_range(&pg_global_prng_state, 0,
										  blocks - 1);
	while (max_blocks-- > 0)
	{
		int64		count;

		CHECK_FOR_INTERRUPTS();
		if (next_block >= blocks)
			next_block = 0;
		count = prune_page(claims, next_block, now, snapshot,
						   max_rows - total);
		total += count;
		if (total == max_rows)
			break;				/* and go on with this page next time */
		next_block++;
		if (count == 0 && stop_at_none)
		{
			next_block = InvalidBlockNumber;
			break;
		}
	}
	UnregisterSnapshot(snapshot);
	return total;
}

/*
 * Called for every fresh claim.
 *
 * Where a session starts is left to chance, here and in prune(): the looks of
 * sessions that claim but once must come as often, and go everywhere.
 */
void
fence_prune_later(void)
{
	if (claims_left < 0)
		claims_left = pg_prng_uint32(&pg_global_prng_state) % CLAIMS_PER_LOOK;
	if (claims_left == 0)
	{
		looks++;
		claims_left = CLAIMS_PER_LOOK;
	}
	claims_left--;
}

/*
 * However many rows the transaction has added, it need not look at more pages
 * than there are.  It may have dropped the extension since.
 */
static void
take_looks(void)
{
	TimestampTz now = GetCurrentTimestamp();
	FenceUnique claims;
	uint32		left;

	if (!fence_claims_exist())
		return;
	fence_claims_open(&claims, RowExclusiveLock);
	left = Min(looks, RelationGetNumberOfBlocks(claims.heap));
	for (; left > 0; left--)
		(void) prune(&claims, now, ROWS_PER_LOOK, PAGES_PER_LOOK, true);
	fence_unique_close(&claims);
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (looks > 0)
				take_looks();
			break;
		case XACT_EVENT_COMMIT:
			looks = 0;
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			/* The next claim makes up for it, lest a rhythm starves them. */
			if (looks > 0)
				claims_left = 0;
			looks = 0;
			break;
		default:
			break;
	}
}

/*
 * Once per backend.
 */
void
fence_prune_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
}

/*
 * fence.prune(max_rows integer) returns bigint
 *
 * Deletes expired claims, max_rows at most; returns how many.  Reads the table
 * once.
 */
Datum
fence_prune(PG_FUNCTION_ARGS)
{
	FenceUnique claims;
	int64		count;
	int32		max_rows;

	fence_prevent_read_only("fence.prune()");
	max_rows = fence_arg_max_rows(fcinfo, 0);

	fence_claims_open(&claims, RowExclusiveLock);
	count = prune(&claims, GetCurrentTimestamp(), max_rows,
				  InvalidBlockNumber, false);
	fence_unique_close(&claims);
	PG_RETURN_INT64(count);
}
