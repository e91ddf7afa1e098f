/*-------------------------------------------------------------------------
 *
 * redis_conn.h
 *	  Connections to Redis that never block a backend.
 *
 * IDENTIFICATION
 *	  src/redis_conn.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_REDIS_CONN_H
#define FENCE_REDIS_CONN_H

#include "redis_reply.h"
#include "redis_server.h"

/* A server with the credentials of a mapping; lives as long as the backend. */
typedef struct FenceRedis FenceRedis;

/* No command of ours has more words. */
#define FENCE_COMMAND_MAX	8

/* A command; the words are bytes, and stay the caller's. */
typedef struct FenceCommand
{
	int			count;
	const char *words[FENCE_COMMAND_MAX];
	size_t		lengths[FENCE_COMMAND_MAX];
	FenceExpect expect;
	bool		unconditional;	/* even while the breaker is open */
	bool		last;			/* the connection is not used after it */
} FenceCommand;

extern FenceRedis *fence_redis(Oid server, Oid mapping);
extern const FenceRedisOptions *fence_redis_options(const FenceRedis *redis);

extern void fence_command_start(FenceCommand *command, const char *word,
								FenceExpect expect);
extern void fence_command_add(FenceCommand *command, const char *word,
							  size_t len);

extern double fence_redis_deadline(const FenceRedis *redis);
extern bool fence_redis_call(FenceRedis *redis, const FenceCommand *command,
							 double deadline, FenceReply *reply);

#endif							/* FENCE_REDIS_CONN_H */
