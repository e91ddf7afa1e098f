/*-------------------------------------------------------------------------
 *
 * claim_row.c
 *	  Rows of fence.idempotency_key.
 *
 * A row is inserted by the claim and, once, updated by its completion, in
 * the same transaction.  The only index is on the id, which that update
 * leaves alone, so it is a HOT one.  Afterwards the row does not change any
 * more until it is pruned.
 *
 * IDENTIFICATION
 *	  src/claim_row.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/uuid.h"

#include "claim_row.h"
#include "table.h"

/* Columns of fence.idempotency_key, in the order of the install script. */
enum
{
	Anum_id = 1,
	Anum_claimed_at,
	Anum_expires_at,
	Anum_scope,
	Anum_key,
	Anum_request,
	Anum_response,
	Natts_claim = Anum_response
};

/*
 * A row stays for a while after it has expired, this part of the time that it
 * was to be kept for, but no longer than that.  Who still believes that a key
 * is known, because a message was long under way or a snapshot is old, must
 * not find that it has just gone.
 */
#define MARGIN_PART		4
#define MARGIN_MAX		USECS_PER_HOUR

static const char *const relname = "idempotency_key";

/*
 * Is there the table?  The transaction may have dropped the extension.
 */
bool
fence_claims_exist(void)
{
	return OidIsValid(fence_relid(relname, true));
}

void
fence_claims_open(FenceUnique *claims, LOCKMODE mode)
{
	fence_unique_open(claims, relname, Natts_claim, F_UUID_EQ, mode);
}

static bool
same_text(Datum stored, const char *text)
{
	struct varlena *value = PG_DETOAST_DATUM_PACKED(stored);
	size_t		len = strlen(text);

	return VARSIZE_ANY_EXHDR(value) == len &&
		memcmp(VARDATA_ANY(value), text, len) == 0;
}

/*
 * Reads the row in the slot, which has the key's id.  Should the id be
 * another key's as well, what happened to that one is none of its business.
 */
void
fence_claim_row_read(FenceUnique *claims, const FenceKey *key,
					 FenceClaimRow *row)
{
	TupleTableSlot *slot = claims->slot;
	Datum	   *values = slot->tts_values;
	bool	   *nulls = slot->tts_isnull;

	slot_getallattrs(slot);
	if (!same_text(values[Anum_scope - 1], key->scope) ||
		!same_text(values[Anum_key - 1], key->key))
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("idempotency key \"%s\" cannot be told from another one",
						key->key),
				 errdetail("Both have the id %s in fence.idempotency_key.",
						   DatumGetCString(DirectFunctionCall1(uuid_out,
															   UUIDPGetDatum(&key->id)))),
				 errhint("Use another key.")));

	row->claimed_at = DatumGetTimestampTz(values[Anum_claimed_at - 1]);
	row->expires_at = DatumGetTimestampTz(values[Anum_expires_at - 1]);
	row->request.digest = NULL;
	row->request.len = 0;
	if (!nulls[Anum_request - 1])
	{
		bytea	   *request = DatumGetByteaPP(values[Anum_request - 1]);

		row->request.digest = (const uint8 *) VARDATA_ANY(request);
		row->request.len = VARSIZE_ANY_EXHDR(request);
	}
	row->has_response = !nulls[Anum_response - 1];
	row->response = values[Anum_response - 1];
}

static Datum
bytea_datum(const FenceRequest *request)
{
	bytea	   *value = palloc(VARHDRSZ + request->len);

	SET_VARSIZE(value, VARHDRSZ + request->len);
	memcpy(VARDATA(value), request->digest, request->len);
	return PointerGetDatum(value);
}

/*
 * Inserts a row without a response; see fence_unique_insert().
 */
bool
fence_claim_row_insert(FenceUnique *claims, const FenceKey *key,
					   const FenceClaimRow *row)
{
	Datum		values[Natts_claim] = {0};
	bool		nulls[Natts_claim] = {false};

	Assert(!row->has_response);
	values[Anum_id - 1] = UUIDPGetDatum(&key->id);
	values[Anum_claimed_at - 1] = TimestampTzGetDatum(row->claimed_at);
	values[Anum_expires_at - 1] = TimestampTzGetDatum(row->expires_at);
	values[Anum_scope - 1] = CStringGetTextDatum(key->scope);
	values[Anum_key - 1] = CStringGetTextDatum(key->key);
	if (row->request.digest != NULL)
		values[Anum_request - 1] = bytea_datum(&row->request);
	nulls[Anum_request - 1] = (row->request.digest == NULL);
	nulls[Anum_response - 1] = true;

	return fence_unique_insert(claims, values, nulls);
}

/*
 * Puts the row into the slot that this transaction has inserted at tid.  The
 * index is asked only if it has got another place since.
 */
static bool
find_own(FenceUnique *claims, const FenceKey *key, ItemPointerData tid)
{
	if (fence_unique_fetch_own(claims, tid))
	{
		bool		isnull;
		Datum		id = slot_getattr(claims->slot, Anum_id, &isnull);

		if (memcmp(DatumGetUUIDP(id)->data, key->id.data, UUID_LEN) == 0)
			return true;
	}
	return fence_unique_find(claims, UUIDPGetDatum(&key->id));
}

/*
 * Completes a row that this transaction has inserted at tid.
 */
void
fence_claim_row_set_response(FenceUnique *claims, const FenceKey *key,
							 ItemPointerData tid, bool has_response,
							 Datum response)
{
	int			column = Anum_response;
	bool		isnull = !has_response;
	HeapTuple	tuple;

	if (!find_own(claims, key, tid))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the claim on idempotency key \"%s\" has disappeared from fence.idempotency_key",
						key->key),
				 errhint("Rows of fence.idempotency_key must not be deleted by hand.")));
	tid = claims->slot->tts_tid;
	tuple = heap_modify_tuple_by_cols(ExecCopySlotHeapTuple(claims->slot),
									  RelationGetDescr(claims->heap), 1,
									  &column, &response, &isnull);
	if (!fence_unique_update(claims, &tid, tuple))
		elog(ERROR, "could not update the row of an own claim");
}

/*
 * May the row be pruned?  It may be any version of it.
 */
bool
fence_claim_row_expired(HeapTuple tuple, TupleDesc desc, TimestampTz now)
{
	bool		isnull;
	TimestampTz claimed_at;
	TimestampTz expires_at;

	expires_at = DatumGetTimestampTz(heap_getattr(tuple, Anum_expires_at,
												  desc, &isnull));
	if (now <= expires_at)
		return false;
	claimed_at = DatumGetTimestampTz(heap_getattr(tuple, Anum_claimed_at,
												  desc, &isnull));
	return now - expires_at > Min((expires_at - claimed_at) / MARGIN_PART,
								  MARGIN_MAX);
}
