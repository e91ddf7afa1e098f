/*-------------------------------------------------------------------------
 *
 * redis_lease.h
 *	  Leases that Redis keeps.
 *
 * IDENTIFICATION
 *	  src/redis_lease.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_REDIS_LEASE_H
#define FENCE_REDIS_LEASE_H

#include "redis_conn.h"
#include "resource.h"
#include "verdict.h"

/* A value of our own is a random number of 128 bits in hex. */
#define FENCE_REDIS_VALUE_LEN	32

extern FenceVerdict *fence_redis_find(const char *server, FenceRedis **redis);
extern bool fence_redis_asked_at(const FenceRedis *redis, bool commit);
extern const FenceVerdict *fence_redis_vouch(FenceRedis *redis,
											 const char *server,
											 const FenceName *name,
											 int64 token,
											 const char *holder);

extern const FenceVerdict *fence_redis_can_hold(const FenceRedis *redis,
												const char *server,
												int64 ttl);
extern char *fence_redis_new_value(void);
extern bool fence_redis_take(FenceRedis *redis, const char *server,
							 const FenceName *name, const char *value,
							 int64 ttl, int64 *remaining);
extern bool fence_redis_prolong(const char *server, const FenceName *name,
								const char *value, int64 ttl);
extern void fence_redis_give_back(const char *server, const FenceName *name,
								  const char *value);

#endif							/* FENCE_REDIS_LEASE_H */
