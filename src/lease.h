/*-------------------------------------------------------------------------
 *
 * lease.h
 *	  The lease of a token, and what it takes to change it.
 *
 * IDENTIFICATION
 *	  src/lease.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_LEASE_H
#define FENCE_LEASE_H

#include "portability/instr_time.h"
#include "resource.h"

#define FENCE_TTL_MIN	INT64CONST(1000)	/* 1 ms, in microseconds */
#define FENCE_TTL_MAX	USECS_PER_DAY

extern void fence_lease_nap(long ms);
extern bool fence_lease_lock(const FenceName *name, LOCKMODE mode);
extern const char *fence_lease_open_for(const FenceName *name, int64 token,
										int64 ttl, TimestampTz *start,
										FenceRow *row);
extern int64 fence_lease_next_token(const FenceName *name,
									const FenceRow *row);
extern Datum fence_lease_remaining(TimestampTz expires_at);

static inline double
fence_elapsed_ms(instr_time start)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	return INSTR_TIME_GET_MILLISEC(now);
}

#endif							/* FENCE_LEASE_H */
