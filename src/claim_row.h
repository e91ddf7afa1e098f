/*-------------------------------------------------------------------------
 *
 * claim_row.h
 *	  Rows of fence.idempotency_key.
 *
 * IDENTIFICATION
 *	  src/claim_row.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_CLAIM_ROW_H
#define FENCE_CLAIM_ROW_H

#include "access/htup.h"
#include "key.h"
#include "unique.h"
#include "utils/timestamp.h"

/* A request in the form in which it is compared: a digest, or null. */
typedef struct FenceRequest
{
	const uint8 *digest;		/* or NULL */
	int			len;
} FenceRequest;

/*
 * One row.  What it points at is in the slot that it was read from, or the
 * caller's.
 */
typedef struct FenceClaimRow
{
	TimestampTz claimed_at;
	TimestampTz expires_at;
	FenceRequest request;
	bool		has_response;
	Datum		response;		/* jsonb, as stored */
} FenceClaimRow;

extern bool fence_claims_exist(void);
extern void fence_claims_open(FenceUnique *claims, LOCKMODE mode);
extern void fence_claim_row_read(FenceUnique *claims, const FenceKey *key,
								 FenceClaimRow *row);
extern bool fence_claim_row_insert(FenceUnique *claims, const FenceKey *key,
								   const FenceClaimRow *row);
extern void fence_claim_row_set_response(FenceUnique *claims,
										 const FenceKey *key,
										 ItemPointerData tid,
										 bool has_response, Datum response);
extern bool fence_claim_row_expired(HeapTuple tuple, TupleDesc desc,
									TimestampTz now);

#endif							/* FENCE_CLAIM_ROW_H */
