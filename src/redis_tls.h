/*-------------------------------------------------------------------------
 *
 * redis_tls.h
 *	  TLS for connections to Redis.
 *
 * IDENTIFICATION
 *	  src/redis_tls.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_REDIS_TLS_H
#define FENCE_REDIS_TLS_H

#include <hiredis/hiredis.h>

extern bool fence_redis_tls_available(void);
extern const char *fence_redis_tls_start(redisContext *context,
										 const char *ca_file,
										 const char *host);
extern void fence_redis_tls_forget_errors(void);
extern const char *fence_redis_tls_objection(const redisContext *context);

#endif							/* FENCE_REDIS_TLS_H */
