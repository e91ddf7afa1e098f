/*-------------------------------------------------------------------------
 *
 * redis_breaker.h
 *	  Servers that are left alone for a while after a failure.
 *
 * IDENTIFICATION
 *	  src/redis_breaker.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_REDIS_BREAKER_H
#define FENCE_REDIS_BREAKER_H

#include "redis_reply.h"
#include "shmem.h"

/* A server, with the credentials of a mapping. */
typedef struct FenceRedisKey
{
	Oid			server;
	Oid			mapping;		/* InvalidOid: no credentials */
} FenceRedisKey;

/* A breaker; the clock is that of its user, in milliseconds. */
typedef struct FenceBreaker
{
	double		open_until;
	uint32		options;		/* fingerprint of those that it failed by */
	FenceReply	failure;		/* what opened it */
} FenceBreaker;

extern Size fence_breakers_size(const FenceLimits *limits);
extern void fence_breakers_init(void *part, const FenceLimits *limits,
								int tranche);
extern bool fence_breaker_shared(const FenceRedisKey *key, uint32 options,
								 double now, FenceBreaker *breaker);
extern void fence_breaker_share(const FenceRedisKey *key, double now,
								const FenceBreaker *breaker);

#endif							/* FENCE_REDIS_BREAKER_H */
