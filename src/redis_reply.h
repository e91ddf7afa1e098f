/*-------------------------------------------------------------------------
 *
 * redis_reply.h
 *	  What a reply of Redis means.
 *
 * IDENTIFICATION
 *	  src/redis_reply.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_REDIS_REPLY_H
#define FENCE_REDIS_REPLY_H

#include <hiredis/hiredis.h>

/* A host name has at most 253 bytes. */
#define FENCE_HOST_MAX		255

/* What a caller takes for an answer. */
typedef enum FenceExpect
{
	FENCE_EXPECT_OK,			/* the status "OK" */
	FENCE_EXPECT_PAIR,			/* two integers, from our own scripts */
	FENCE_EXPECT_ADDRESS		/* host and port as two strings, or nothing */
} FenceExpect;

typedef enum FenceReplyStatus
{
	FENCE_REPLY_GOOD,			/* what the caller expects */
	FENCE_REPLY_NOTHING,		/* a null where there could be an address */
	FENCE_REPLY_NO_SCRIPT,		/* EVALSHA of a script not known there */
	FENCE_REPLY_MOVED,			/* another node of the cluster serves the key */
	FENCE_REPLY_ASK,			/* the same, for this one command */
	FENCE_REPLY_READ_ONLY,		/* this is not the master (any more) */
	FENCE_REPLY_UNABLE,			/* it cannot answer for now: loading, busy, ... */
	FENCE_REPLY_LOST,			/* the connection ended before the answer */
	FENCE_REPLY_LATE,			/* the deadline came before the answer */
	FENCE_REPLY_UNREACHABLE,	/* no connection */
	FENCE_REPLY_MISCONFIGURED	/* no answer until somebody changes something */
} FenceReplyStatus;

/* An answer, good or bad; no memory hangs off it. */
typedef struct FenceReply
{
	FenceReplyStatus status;
	long long	pair[2];		/* FENCE_EXPECT_PAIR */
	char		host[FENCE_HOST_MAX + 1];	/* address; may be empty: the same */
	int			port;
	char		problem[128];	/* printable ASCII, unless it is good */
} FenceReply;

extern redisReader *fence_reply_reader(void);
extern bool fence_reply_address(const char *text, size_t len, char *host,
								int *port);
extern void fence_reply_decode(const redisReply *reply, FenceExpect expect,
							   FenceReply *decoded);
extern void fence_reply_problem(FenceReply *decoded, FenceReplyStatus status,
								const char *text, size_t len);

#endif							/* FENCE_REDIS_REPLY_H */
