/*-------------------------------------------------------------------------
 *
 * present.h
 *	  Tokens presented in this transaction.
 *
 * IDENTIFICATION
 *	  src/present.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_PRESENT_H
#define FENCE_PRESENT_H

#include "resource.h"
#include "verdict.h"

/*
 * Who has to vouch for the lease behind a token: this one is fence.resource,
 * now and at commit; any other is a server of the wrapper fence_redis.
 */
#define FENCE_LEASE_POSTGRES	"postgres"

/* A token as it is handed in. */
typedef struct FenceToken
{
	FenceName	name;			/* of the resource */
	int64		number;
	const char *holder;			/* or NULL */
	const char *lease;			/* who vouches; NULL: only the order counts */
	bool		observed;		/* at commit, only warn */
} FenceToken;

extern void fence_present_init(void);
extern bool fence_lease_in_store(const char *lease);

extern const FenceVerdict *fence_present(const FenceToken *token);
extern int64 fence_raise(const FenceName *name, int64 token);
extern int64 fence_presented(const FenceName *name);
extern bool fence_presented_any(void);
extern uint64 fence_present_generation(void);

extern const FenceVerdict *fence_present_judge_move(const FenceName *name,
													const FenceRow *row);
extern void fence_present_moved(const FenceName *name, int64 number,
								const char *holder);

#endif							/* FENCE_PRESENT_H */
