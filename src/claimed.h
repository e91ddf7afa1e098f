/*-------------------------------------------------------------------------
 *
 * claimed.h
 *	  Claims that this transaction has made.
 *
 * IDENTIFICATION
 *	  src/claimed.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_CLAIMED_H
#define FENCE_CLAIMED_H

#include "key.h"
#include "statement.h"
#include "storage/itemptr.h"

typedef enum FenceClaimState
{
	FENCE_CLAIM_OPEN,			/* must be completed before the commit */
	FENCE_CLAIM_UNWRITTEN,		/* a guard's, for a row not written so far */
	FENCE_CLAIM_DONE
} FenceClaimState;

typedef struct FenceClaim
{
	FenceClaimState state;
	FenceStatement statement;	/* that made it */
	ItemPointerData tid;		/* where its row was inserted, if it has one */
} FenceClaim;

extern void fence_claimed_init(void);
extern const FenceClaim *fence_claimed(const FenceKey *key);
extern void fence_claimed_note(const FenceKey *key, const FenceClaim *claim);
extern void fence_replayed_note(const char *resource,
								const FenceStatement *statement);
extern bool fence_replayed(const char *resource,
						   const FenceStatement *statement);

#endif							/* FENCE_CLAIMED_H */
