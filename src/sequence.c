/*-------------------------------------------------------------------------
 *
 * sequence.c
 *	  Ordered streams: operations that their producer has numbered.
 *
 * A producer has one row, with the last number that was applied, however many
 * operations there were.  Only the next number is new.  One that skips ahead
 * is refused: if it were applied, those in between would be taken for
 * duplicates when they come, and be lost.
 *
 * The row is locked by whoever applies a number until his transaction ends,
 * so the operations of one producer are applied one after the other.
 *
 * IDENTIFICATION
 *	  src/sequence.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "args.h"
#include "claimed.h"
#include "constraint.h"
#include "errors.h"
#include "unique.h"

PG_FUNCTION_INFO_V1(fence_claim_sequence);

/* Columns of fence.producer, in the order of the install script. */
enum
{
	Anum_name = 1,
	Anum_last,
	Anum_claimed_at,
	Natts_producer = Anum_claimed_at
};

typedef struct SequenceClaim
{
	const char *producer;
	int64		number;
	int64		first;
	Datum		name;			/* the producer, as text */
} SequenceClaim;

static void
gap_error(const SequenceClaim *claim, int64 expected, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_SEQUENCE_GAP),
			 errmsg("number %lld of producer \"%s\" leaves a gap",
					(long long) claim->number, claim->producer),
			 errdetail_internal("%s", detail),
			 errhint("Send the operations again from number %lld on.",
					 (long long) expected)));
}

/* False if another session has been faster: look again. */
static bool
start(FenceUnique *producers, const SequenceClaim *claim)
{
	Datum		values[Natts_producer];
	bool		nulls[Natts_producer] = {false};

	if (claim->number != claim->first)
		gap_error(claim, claim->first,
				  psprintf("The producer is not known, and its first number is %lld.",
						   (long long) claim->first));
	values[Anum_name - 1] = claim->name;
	values[Anum_last - 1] = Int64GetDatum(claim->number);
	values[Anum_claimed_at - 1] = TimestampTzGetDatum(GetCurrentTimestamp());
	return fence_unique_insert(producers, values, nulls);
}

/* The same, for the row in the slot. */
static bool
advance(FenceUnique *producers, const SequenceClaim *claim)
{
	ItemPointerData tid = producers->slot->tts_tid;
	HeapTuple	tuple = ExecCopySlotHeapTuple(producers->slot);
	int			columns[2] = {Anum_last, Anum_claimed_at};
	Datum		values[2];
	bool		nulls[2] = {false};

	values[0] = Int64GetDatum(claim->number);
	values[1] = TimestampTzGetDatum(GetCurrentTimestamp());
	tuple = heap_modify_tuple_by_cols(tuple, RelationGetDescr(producers->heap),
									  2, columns, values, nulls);
	return fence_unique_update(producers, &tid, tuple);
}

static int64
last_number(FenceUnique *producers, const SequenceClaim *claim)
{
	bool		isnull;

	if (!fence_unique_visible(producers))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access due to concurrent operation of producer \"%s\"",
						claim->producer),
				 errhint("Retry the transaction.")));
	return DatumGetInt64(slot_getattr(producers->slot, Anum_last, &isnull));
}

/* True if the number is the next one, false if it has been applied. */
static bool
claim_next(FenceUnique *producers, const SequenceClaim *claim)
{
	for (;;)
	{
		int64		last;

		if (!fence_unique_find(producers, claim->name))
		{
			if (start(producers, claim))
				return true;
			continue;
		}
		last = last_number(producers, claim);
		if (claim->number <= last)
			return false;
		if (claim->number - 1 > last)
			gap_error(claim, last + 1,
					  psprintf("The last number that was applied is %lld.",
							   (long long) last));
		if (advance(producers, claim))
			return true;
	}
}

/*
 * What stands for a number among the claims of the transaction.  No
 * idempotency key is empty, so it is nobody else's.
 */
static FenceKey
number_key(const SequenceClaim *claim)
{
	return fence_key(psprintf("%s %lld", claim->producer,
							  (long long) claim->number), "");
}

/*
 * fence.claim_sequence(producer text, seq bigint, first bigint)
 *		returns boolean
 *
 * True if seq is the next number of the producer, or the first one of an
 * unknown producer, and for every row of the statement that asks; false if it
 * has been applied.  PF104 if it skips ahead, 22023 if it is below the first
 * one.
 */
Datum
fence_claim_sequence(PG_FUNCTION_ARGS)
{
	SequenceClaim claim;
	FenceKey	key;
	FenceClaim	note = {0};
	const FenceClaim *own;
	FenceUnique producers;
	bool		fresh;

	fence_prevent_read_only("fence.claim_sequence()");
	fence_prevent_in_constraint(fcinfo->flinfo);
	claim.producer = fence_arg_text(fcinfo, 0, "producer", FENCE_KEY_MAX,
									false);
	fence_arg_not_null(fcinfo, 1, "sequence number");
	fence_arg_not_null(fcinfo, 2, "first sequence number");
	claim.number = PG_GETARG_INT64(1);
	claim.first = PG_GETARG_INT64(2);
	if (claim.number < claim.first)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid sequence number: %lld",
						(long long) claim.number),
				 errdetail("The first number of the producer is %lld.",
						   (long long) claim.first)));
	claim.name = CStringGetTextDatum(claim.producer);

	key = number_key(&claim);
	note.state = FENCE_CLAIM_DONE;
	note.statement = fence_statement(fcinfo->flinfo);
	own = fence_claimed(&key);
	if (own != NULL && fence_same_statement(&own->statement, &note.statement))
		PG_RETURN_BOOL(true);

	fence_unique_open(&producers, "producer", Natts_producer, F_TEXTEQ,
					  RowExclusiveLock);
	fresh = claim_next(&producers, &claim);
	fence_unique_close(&producers);
	if (fresh)
		fence_claimed_note(&key, &note);
	PG_RETURN_BOOL(fresh);
}
