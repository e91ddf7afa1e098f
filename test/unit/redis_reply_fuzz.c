/*-------------------------------------------------------------------------
 *
 * redis_reply_fuzz.c
 *	  Fuzz target for what replies of Redis are taken for.
 *
 * The first byte chooses what is expected; the others come from the socket.
 * What must hold for every input:
 *
 *	- nothing is read or written out of bounds, and no length that the input
 *	  claims is allocated (libFuzzer limits the memory)
 *	- whatever is not an error or the expected answer is misconfigured
 *	- texts and addresses have the promised shape
 *
 * Copyright (c) 2026, the pg_fence maintainers
 *
 * test/unit/redis_reply_fuzz.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "check.h"
#include "redis_reply.h"

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_good(const redisReply *reply, FenceExpect expect, const FenceReply *decoded)
{
	switch (expect)
	{
		case FENCE_EXPECT_OK:
			MUST(reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0);
			break;
		case FENCE_EXPECT_PAIR:
			MUST(reply->type == REDIS_REPLY_ARRAY && reply->elements == 2);
			MUST(decoded->pair[0] == reply->element[0]->integer);
			MUST(decoded->pair[1] == reply->element[1]->integer);
			break;
		case FENCE_EXPECT_ADDRESS:
			MUST(decoded->port >= 1 && decoded->port <= 65535);
			MUST(strcmp(decoded->host, reply->element[0]->str) == 0);
			break;
	}
}

static void
check_decoded(const redisReply *reply, FenceExpect expect)
{
	FenceReply	decoded;
	const char *c;

	fence_reply_decode(reply, expect, &decoded);
	MUST(decoded.status != FENCE_REPLY_LOST);
	if (decoded.status == FENCE_REPLY_GOOD)
		check_good(reply, expect, &decoded);
	else if (decoded.status == FENCE_REPLY_NOTHING)
		MUST(reply->type == REDIS_REPLY_NIL && expect == FENCE_EXPECT_ADDRESS);
	else if (reply->type != REDIS_REPLY_ERROR)
		MUST(decoded.status == FENCE_REPLY_MISCONFIGURED);
	if (decoded.status == FENCE_REPLY_MOVED || decoded.status == FENCE_REPLY_ASK)
		MUST(decoded.port >= 1 && decoded.port <= 65535);
	MUST(strlen(decoded.host) <= FENCE_HOST_MAX);
	MUST(strlen(decoded.problem) < sizeof(decoded.problem));
	for (c = decoded.problem; *c != '\0'; c++)
		MUST(*c >= ' ' && *c <= '~');
}

/* The same bytes as an address. */
static void
check_address(const char *text, size_t len)
{
	char		host[FENCE_HOST_MAX + 1];
	int			port;

	if (!fence_reply_address(text, len, host, &port))
		return;
	MUST(port >= 1 && port <= 65535);
	MUST(strlen(host) < len);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	redisReader *reader;
	void	   *reply = NULL;

	if (size == 0)
		return 0;
	check_address((const char *) data, size);

	reader = fence_reply_reader();
	MUST(reader != NULL);
	if (redisReaderFeed(reader, (const char *) data + 1, size - 1) == REDIS_OK)
	{
		while (redisReaderGetReply(reader, &reply) == REDIS_OK && reply != NULL)
		{
			check_decoded(reply, data[0] % 3);
			freeReplyObject(reply);
			reply = NULL;
		}
	}
	redisReaderFree(reader);
	return 0;
}
