/*-------------------------------------------------------------------------
 *
 * claim.h
 *	  Claiming an idempotency key.
 *
 * IDENTIFICATION
 *	  src/claim.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_CLAIM_H
#define FENCE_CLAIM_H

#include "claim_row.h"
#include "claimed.h"
#include "verdict.h"

/* How long a key is kept, if the caller does not say. */
#define FENCE_RETAIN_DEFAULT	USECS_PER_DAY

/* Who claims, and how. */
typedef struct FenceClaimRequest
{
	FenceRequest request;
	int64		retain;			/* microseconds */
	FenceClaimState state;		/* of a fresh claim */
	FenceStatement statement;
} FenceClaimRequest;

typedef struct FenceClaimResult
{
	bool		fresh;			/* go on; else it has been done */
	TimestampTz claimed_at;
	bool		has_response;
	Datum		response;		/* jsonb, palloc'd */
} FenceClaimResult;

extern const FenceVerdict *fence_claim_with(FenceUnique *claims,
											const FenceKey *key,
											const FenceClaimRequest *request,
											FenceClaimResult *result);
extern const FenceVerdict *fence_claim(const FenceKey *key,
									   const FenceClaimRequest *request,
									   FenceClaimResult *result);
extern bool fence_claim_written(const FenceKey *key);
extern void fence_complete(const FenceKey *key, bool has_response,
						   Datum response);

#endif							/* FENCE_CLAIM_H */
