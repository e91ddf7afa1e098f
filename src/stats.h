/*-------------------------------------------------------------------------
 *
 * stats.h
 *	  What is counted, per resource, per table and per Redis server.
 *
 * IDENTIFICATION
 *	  src/stats.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_STATS_H
#define FENCE_STATS_H

#include "histogram.h"
#include "resource.h"
#include "shmem.h"

/* PF001 to PF007, and everything else. */
#define FENCE_REJECTION_CLASSES	8

/*
 * Counters of a resource; times are microseconds.  First comes the one that
 * each transaction adds to: see counters.c.
 */
typedef enum FenceResourceCounter
{
	FENCE_RESOURCE_CHECKS,
	FENCE_RESOURCE_ATTEMPTS,
	FENCE_RESOURCE_ACQUIRED,
	FENCE_RESOURCE_CONTENDED,
	FENCE_RESOURCE_RELEASES,
	FENCE_RESOURCE_EXPIRATIONS,
	FENCE_RESOURCE_TAKEOVERS,
	FENCE_RESOURCE_HAND_OVERS,
	FENCE_RESOURCE_BREAKS,
	FENCE_RESOURCE_OBSERVED,
	FENCE_RESOURCE_REJECTIONS,
	FENCE_RESOURCE_WAIT_TIME = FENCE_RESOURCE_REJECTIONS +
	FENCE_REJECTION_CLASSES,
	FENCE_RESOURCE_HOLD_TIME,
	FENCE_RESOURCE_WAITS,
	FENCE_RESOURCE_HOLDS = FENCE_RESOURCE_WAITS + FENCE_HISTOGRAM_BUCKETS,
	FENCE_RESOURCE_COUNTERS = FENCE_RESOURCE_HOLDS + FENCE_HISTOGRAM_BUCKETS
} FenceResourceCounter;

typedef enum FenceTableCounter
{
	FENCE_TABLE_BYPASSED,
	FENCE_TABLE_OBSERVED,
	FENCE_TABLE_REJECTIONS,
	FENCE_TABLE_COUNTERS = FENCE_TABLE_REJECTIONS + FENCE_REJECTION_CLASSES
} FenceTableCounter;

/* What became of a call to Redis. */
typedef enum FenceRedisOutcome
{
	FENCE_REDIS_ANSWERED,
	FENCE_REDIS_UNREACHABLE,	/* no connection, or it broke */
	FENCE_REDIS_TIMED_OUT,
	FENCE_REDIS_UNABLE,			/* answered that it cannot now (LOADING, ...) */
	FENCE_REDIS_MISCONFIGURED	/* wrong password, wrong type, not a Redis */
} FenceRedisOutcome;

typedef enum FenceServerCounter
{
	FENCE_SERVER_OUTCOMES,		/* by FenceRedisOutcome */
	FENCE_SERVER_TIME = FENCE_SERVER_OUTCOMES + FENCE_REDIS_MISCONFIGURED + 1,
	FENCE_SERVER_CALLS,
	FENCE_SERVER_COUNTERS = FENCE_SERVER_CALLS + FENCE_HISTOGRAM_BUCKETS
} FenceServerCounter;

/* How a lease came to its end. */
typedef enum FenceLeaseEnd
{
	FENCE_LEASE_RELEASED,
	FENCE_LEASE_EXPIRED,		/* found when it is acquired again */
	FENCE_LEASE_TAKEN_OVER,		/* the same, by another holder */
	FENCE_LEASE_HANDED_OVER,
	FENCE_LEASE_BROKEN
} FenceLeaseEnd;

/* What is kept at most of tables and servers. */
#define FENCE_STATS_TABLES		1000
#define FENCE_STATS_SERVERS		100

extern Size fence_resource_stats_size(const FenceLimits *limits);
extern void fence_resource_stats_init(void *part, const FenceLimits *limits,
									  int tranche);
extern Size fence_table_stats_size(const FenceLimits *limits);
extern void fence_table_stats_init(void *part, const FenceLimits *limits,
								   int tranche);
extern Size fence_server_stats_size(const FenceLimits *limits);
extern void fence_server_stats_init(void *part, const FenceLimits *limits,
									int tranche);

extern void fence_stats_attempt(const FenceName *name, bool contended);
extern void fence_stats_wait(const FenceName *name, int64 waited);
extern void fence_stats_grant(const FenceName *name);
extern void fence_stats_lease_end(const FenceName *name, FenceLeaseEnd end,
								  int64 held);
extern void fence_stats_expect(const FenceName *name);
extern void fence_stats_check(const FenceName *name);
extern void fence_stats_rejection(const FenceName *name, Oid relid,
								  int sqlstate, bool observed);
extern void fence_stats_bypass(Oid relid);
extern void fence_stats_redis(Oid server, int64 elapsed,
							  FenceRedisOutcome outcome);

#endif							/* FENCE_STATS_H */
