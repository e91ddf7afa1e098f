/*-------------------------------------------------------------------------
 *
 * redis_server.h
 *	  Options of a server of the wrapper fence_redis.
 *
 * IDENTIFICATION
 *	  src/redis_server.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_REDIS_SERVER_H
#define FENCE_REDIS_SERVER_H

#include "verdict.h"

/* How the clients of this server store their locks. */
typedef enum FenceLayout
{
	FENCE_LAYOUT_STRING,		/* the value is the holder */
	FENCE_LAYOUT_PREFIX,		/* the value begins with the holder */
	FENCE_LAYOUT_HASH,			/* the holder is a field */
	FENCE_LAYOUT_ZSET			/* the holder is a member, its score the end */
} FenceLayout;

/* When a lease is asked for. */
typedef enum FenceValidate
{
	FENCE_VALIDATE_WRITE,		/* when the token is presented */
	FENCE_VALIDATE_COMMIT,		/* before the transaction commits */
	FENCE_VALIDATE_BOTH
} FenceValidate;

/* Options of a server and of the user mapping; all durations in ms. */
typedef struct FenceRedisOptions
{
	char	   *host;			/* or NULL */
	int			port;
	char	   *socket;			/* path, or NULL */
	char	   *sentinel;		/* "host:port,host:port", or NULL */
	char	   *master_name;
	int			db;
	bool		tls;
	char	   *ca_file;
	int			layout;			/* FenceLayout */
	char	   *key_prefix;		/* or NULL */
	int			timeout_ms;
	int			margin_ms;
	bool		allow_no_expiry;
	int			validate;		/* FenceValidate */
	int			on_unreachable; /* not 0: let the write through */
	int			breaker_ms;
	char	   *username;		/* or NULL */
	char	   *password;		/* or NULL */
	uint32		fingerprint;	/* of all that are set */
} FenceRedisOptions;

extern FenceVerdict *fence_redis_server_find(const char *name, Oid *server,
											 Oid *mapping);
extern void fence_redis_server_options(Oid server, Oid mapping,
									   FenceRedisOptions *options);
extern const char *fence_next_sentinel(const char *list, char *host,
									   int *port);

#endif							/* FENCE_REDIS_SERVER_H */
