/*-------------------------------------------------------------------------
 *
 * claim.c
 *	  Claiming an idempotency key, and completing the claim.
 *
 * A claim is an ordinary row, written in the transaction that does the work.
 * While that is open, the row is not committed: whoever brings the same key
 * waits for it.  If it is rolled back, in whole or to a savepoint, the row is
 * gone and the key free at once; nobody has to clean up after a crash.  If it
 * commits, the row is there together with the work and its result.  There is
 * no third state.
 *
 * IDENTIFICATION
 *	  src/claim.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/rel.h"

#include "claim.h"
#include "errors.h"
#include "prune.h"

static const FenceVerdict *
judge_request(const FenceKey *key, const FenceRequest *request,
			  const FenceRequest *stored)
{
	if (request->len == stored->len &&
		(request->len == 0 ||
		 memcmp(request->digest, stored->digest, request->len) == 0))
		return NULL;
	return fence_verdict(ERRCODE_FENCE_OTHER_REQUEST,
						 psprintf("idempotency key \"%s\" was used with another request",
								  key->key),
						 psprintf("In scope \"%s\" it names an operation with other parameters.",
								  key->scope),
						 "A repeated operation must bring the same request; a new one needs a new key.");
}

/*
 * The transaction's snapshot is older than the claim of another one: what it
 * has read may be, too.  With a new snapshot it would replay.
 */
static const FenceVerdict *
judge_visible(FenceUnique *claims, const FenceKey *key)
{
	if (fence_unique_visible(claims))
		return NULL;
	return fence_verdict(ERRCODE_T_R_SERIALIZATION_FAILURE,
						 psprintf("could not serialize access due to concurrent claim of idempotency key \"%s\"",
								  key->key),
						 psprintf("In scope \"%s\" it was claimed after the transaction's snapshot was taken.",
								  key->scope),
						 "Retry the transaction; it will find the key claimed.");
}

static void
note_claim(const FenceKey *key, const FenceClaimRequest *request,
		   ItemPointerData tid)
{
	FenceClaim	claim;

	claim.state = request->state;
	claim.statement = request->statement;
	claim.tid = tid;
	fence_claimed_note(key, &claim);
}

/*
 * Nothing has happened under the earlier claim: it is this statement's now.
 * Like one that writes a row, it raises the command number, or the next
 * statement could not be told from it.
 */
static void
take_over(const FenceKey *key, const FenceClaim *own,
		  const FenceClaimRequest *request)
{
	note_claim(key, request, own->tid);
	(void) GetCurrentCommandId(true);
	CommandCounterIncrement();
}

/*
 * This transaction has claimed the key before.  Sets *fresh if that is the
 * claim that is asked for now.
 */
static const FenceVerdict *
claim_again(const FenceKey *key, const FenceClaim *own,
			const FenceClaimRequest *request, bool *fresh)
{
	*fresh = true;
	if (fence_same_statement(&own->statement, &request->statement))
		return NULL;
	switch (own->state)
	{
		case FENCE_CLAIM_OPEN:
			return fence_verdict(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
								 psprintf("idempotency key \"%s\" is already claimed by this transaction, and not completed",
										  key->key),
								 psprintf("Its scope is \"%s\".", key->scope),
								 "Call fence.complete() for the first claim before the key is asked for again.");
		case FENCE_CLAIM_UNWRITTEN:
			take_over(key, own, request);
			break;
		case FENCE_CLAIM_DONE:
			*fresh = false;
			break;
	}
	return NULL;
}

/* The row that is there is in the slot. */
static const FenceVerdict *
claim_existing(FenceUnique *claims, const FenceKey *key,
			   const FenceClaimRequest *request, FenceClaimResult *result)
{
	const FenceClaim *own = fence_claimed(key);
	const FenceVerdict *verdict = NULL;
	FenceClaimRow row;

	if (own == NULL)
		verdict = judge_visible(claims, key);
	if (verdict != NULL)
		return verdict;
	fence_claim_row_read(claims, key, &row);
	verdict = judge_request(key, &request->request, &row.request);
	result->fresh = false;
	if (verdict == NULL && own != NULL)
		verdict = claim_again(key, own, request, &result->fresh);
	if (verdict != NULL)
		return verdict;

	result->claimed_at = row.claimed_at;
	result->has_response = (row.has_response && !result->fresh);
	if (result->has_response)
		result->response =
			PointerGetDatum(PG_DETOAST_DATUM_COPY(row.response));
	return NULL;
}

static bool
claim_fresh(FenceUnique *claims, const FenceKey *key,
			const FenceClaimRequest *request, FenceClaimResult *result)
{
	FenceClaimRow row = {0};

	row.claimed_at = GetCurrentTimestamp();
	row.expires_at = row.claimed_at + request->retain;
	row.request = request->request;
	if (!fence_claim_row_insert(claims, key, &row))
		return false;
	note_claim(key, request, claims->slot->tts_tid);
	fence_prune_later();

	result->fresh = true;
	result->claimed_at = row.claimed_at;
	result->has_response = false;
	return true;
}

/*
 * Claims the key, or finds out what came of the operation.  Waits for another
 * transaction that has claimed it.  Returns a verdict, and no result, if
 * neither can be: PF101 if the key belongs to another request, 40001 if the
 * transaction's snapshot is too old to tell, and 55000 if this transaction has
 * a claim on it open.
 *
 * A replay writes nothing.
 */
const FenceVerdict *
fence_claim_with(FenceUnique *claims, const FenceKey *key,
				 const FenceClaimRequest *request, FenceClaimResult *result)
{
	for (;;)
	{
		if (fence_unique_find(claims, UUIDPGetDatum(&key->id)))
			return claim_existing(claims, key, request, result);
		if (claim_fresh(claims, key, request, result))
			return NULL;
	}
}

const FenceVerdict *
fence_claim(const FenceKey *key, const FenceClaimRequest *request,
			FenceClaimResult *result)
{
	const FenceVerdict *verdict;
	FenceUnique claims;

	fence_claims_open(&claims, RowExclusiveLock);
	verdict = fence_claim_with(&claims, key, request, result);
	fence_unique_close(&claims);
	return verdict;
}

/*
 * A row has been written under the key.  False if no guard has claimed it for
 * that.
 */
bool
fence_claim_written(const FenceKey *key)
{
	const FenceClaim *own = fence_claimed(key);
	FenceClaim	claim;

	if (own == NULL || own->state != FENCE_CLAIM_UNWRITTEN)
		return false;
	claim = *own;
	claim.state = FENCE_CLAIM_DONE;
	fence_claimed_note(key, &claim);
	return true;
}

static void
not_open_error(const FenceKey *key, const FenceClaim *own)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 own == NULL ?
			 errmsg("idempotency key \"%s\" is not claimed by this transaction",
					key->key) :
			 errmsg("idempotency key \"%s\" is completed already", key->key),
			 errdetail("Its scope is \"%s\".", key->scope),
			 own == NULL ?
			 errhint("Call fence.claim() with the same key and scope in the same transaction first, and complete only what it returns as fresh.") :
			 errhint("Complete a claim once; those of fence.once() and of key columns need no completion.")));
}

/*
 * Stores the response, after which the claim may be committed.
 */
void
fence_complete(const FenceKey *key, bool has_response, Datum response)
{
	const FenceClaim *own = fence_claimed(key);
	FenceClaim	claim;
	FenceUnique claims;

	if (own == NULL || own->state != FENCE_CLAIM_OPEN)
		not_open_error(key, own);

	fence_claims_open(&claims, RowExclusiveLock);
	fence_claim_row_set_response(&claims, key, own->tid, has_response,
								 response);
	fence_unique_close(&claims);

	claim = *own;
	claim.state = FENCE_CLAIM_DONE;
	fence_claimed_note(key, &claim);
}
