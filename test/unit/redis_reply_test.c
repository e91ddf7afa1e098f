/*-------------------------------------------------------------------------
 *
 * redis_reply_test.c
 *	  Tests of what replies of Redis are taken for, without a Redis.
 *
 * Copyright (c) 2026, the pg_fence maintainers
 *
 * test/unit/redis_reply_test.c
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "redis_reply.h"

/*
 * What the bytes are taken for.  They are fed one by one, as a slow server
 * would.  Bytes that are no reply, or not all of one, are FENCE_REPLY_LOST.
 */
static FenceReply
decode(const char *bytes, size_t len, FenceExpect expect)
{
	redisReader *reader = fence_reply_reader();
	FenceReply	decoded = {.status = FENCE_REPLY_LOST};
	void	   *reply = NULL;
	size_t		i;

	if (reader == NULL)
		abort();
	for (i = 0; i < len && reply == NULL; i++)
	{
		if (redisReaderFeed(reader, bytes + i, 1) != REDIS_OK ||
			redisReaderGetReply(reader, &reply) != REDIS_OK)
			break;
	}
	if (reply != NULL)
	{
		fence_reply_decode(reply, expect, &decoded);
		freeReplyObject(reply);
	}
	redisReaderFree(reader);
	return decoded;
}

static FenceReply
decode_text(const char *text, FenceExpect expect)
{
	return decode(text, strlen(text), expect);
}

static FenceReplyStatus
status_of(const char *text, FenceExpect expect)
{
	return decode_text(text, expect).status;
}

static void
test_ok(void)
{
	CHECK(status_of("+OK\r\n", FENCE_EXPECT_OK) == FENCE_REPLY_GOOD);
	CHECK(status_of("+OKAY\r\n", FENCE_EXPECT_OK) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("+QUEUED\r\n", FENCE_EXPECT_OK) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("$2\r\nOK\r\n", FENCE_EXPECT_OK) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of(":1\r\n", FENCE_EXPECT_OK) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("$-1\r\n", FENCE_EXPECT_OK) == FENCE_REPLY_MISCONFIGURED);
}

static void
test_pair(void)
{
	FenceReply	decoded = decode_text("*2\r\n:1\r\n:-9223372036854775808\r\n",
									  FENCE_EXPECT_PAIR);

	CHECK(decoded.status == FENCE_REPLY_GOOD);
	CHECK(decoded.pair[0] == 1);
	CHECK(decoded.pair[1] == LLONG_MIN);

	/* neither "yes" nor "no" */
	CHECK(status_of("$-1\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("*-1\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("*0\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("*1\r\n:1\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("*3\r\n:1\r\n:2\r\n:3\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("*2\r\n:1\r\n$1\r\n5\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("*2\r\n*2\r\n:1\r\n:1\r\n:1\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of(":1\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("+OK\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
}

static void
test_address(void)
{
	FenceReply	decoded = decode_text("*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6379\r\n",
									  FENCE_EXPECT_ADDRESS);

	CHECK(decoded.status == FENCE_REPLY_GOOD);
	CHECK(strcmp(decoded.host, "127.0.0.1") == 0);
	CHECK(decoded.port == 6379);
	CHECK(status_of("*-1\r\n", FENCE_EXPECT_ADDRESS) == FENCE_REPLY_NOTHING);
	CHECK(status_of("$-1\r\n", FENCE_EXPECT_ADDRESS) == FENCE_REPLY_NOTHING);
	CHECK(status_of("*2\r\n$0\r\n\r\n$1\r\n1\r\n", FENCE_EXPECT_ADDRESS) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("*2\r\n$1\r\nh\r\n$1\r\n0\r\n", FENCE_EXPECT_ADDRESS) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("*2\r\n$1\r\nh\r\n$5\r\n65536\r\n", FENCE_EXPECT_ADDRESS) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("*2\r\n$1\r\nh\r\n:1\r\n", FENCE_EXPECT_ADDRESS) == FENCE_REPLY_MISCONFIGURED);
	CHECK(decode("*2\r\n$3\r\na\0b\r\n$1\r\n1\r\n", 20, FENCE_EXPECT_ADDRESS).status == FENCE_REPLY_MISCONFIGURED);
}

static void
test_error_words(void)
{
	static const struct
	{
		const char *text;
		FenceReplyStatus status;
	}			cases[] = {
		{"-NOSCRIPT No matching script.\r\n", FENCE_REPLY_NO_SCRIPT},
		{"-READONLY You can't write against a read only replica.\r\n", FENCE_REPLY_READ_ONLY},
		{"-LOADING Redis is loading the dataset in memory\r\n", FENCE_REPLY_UNABLE},
		{"-BUSY Redis is busy running a script.\r\n", FENCE_REPLY_UNABLE},
		{"-MISCONF Redis is configured to save RDB snapshots\r\n", FENCE_REPLY_UNABLE},
		{"-OOM command not allowed\r\n", FENCE_REPLY_UNABLE},
		{"-CLUSTERDOWN The cluster is down\r\n", FENCE_REPLY_UNABLE},
		{"-MASTERDOWN Link with MASTER is down\r\n", FENCE_REPLY_UNABLE},
		{"-TRYAGAIN Multiple keys\r\n", FENCE_REPLY_UNABLE},
		{"-ERR max number of clients reached\r\n", FENCE_REPLY_UNABLE},
		{"-NOAUTH Authentication required.\r\n", FENCE_REPLY_MISCONFIGURED},
		{"-WRONGPASS invalid username-password pair\r\n", FENCE_REPLY_MISCONFIGURED},
		{"-NOPERM this user has no permissions\r\n", FENCE_REPLY_MISCONFIGURED},
		{"-WRONGTYPE Operation against a key\r\n", FENCE_REPLY_MISCONFIGURED},
		{"-ERR unknown command\r\n", FENCE_REPLY_MISCONFIGURED},
		{"-BUSYGROUP Consumer Group name already exists\r\n", FENCE_REPLY_MISCONFIGURED},
		{"-loading\r\n", FENCE_REPLY_MISCONFIGURED},
		{"-LOADING\r\n", FENCE_REPLY_UNABLE},
		{"-\r\n", FENCE_REPLY_MISCONFIGURED}
	};
	size_t		i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
	{
		if (!CHECK(status_of(cases[i].text, FENCE_EXPECT_PAIR) == cases[i].status) ||
			!CHECK(status_of(cases[i].text, FENCE_EXPECT_OK) == cases[i].status))
			printf("    %s", cases[i].text);
	}
}

static void
test_redirects(void)
{
	FenceReply	decoded = decode_text("-MOVED 3999 127.0.0.1:6381\r\n",
									  FENCE_EXPECT_PAIR);

	CHECK(decoded.status == FENCE_REPLY_MOVED);
	CHECK(strcmp(decoded.host, "127.0.0.1") == 0 && decoded.port == 6381);
	decoded = decode_text("-ASK 1 ::1:7000\r\n", FENCE_EXPECT_PAIR);
	CHECK(decoded.status == FENCE_REPLY_ASK);
	CHECK(strcmp(decoded.host, "::1") == 0 && decoded.port == 7000);
	decoded = decode_text("-MOVED 1 :7000\r\n", FENCE_EXPECT_PAIR);
	CHECK(decoded.status == FENCE_REPLY_MOVED);
	CHECK(decoded.host[0] == '\0' && decoded.port == 7000);
	CHECK(status_of("-MOVED\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("-MOVED 1 host\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("-MOVED 1 host:0\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
	CHECK(status_of("-MOVED 1 host:1x\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_MISCONFIGURED);
}

static void
test_not_redis(void)
{
	/* what the reader does not take for a reply at all */
	CHECK(status_of("HTTP/1.1 400 Bad Request\r\n\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_LOST);
	CHECK(status_of("*2\r\n:1\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_LOST);
	CHECK(status_of("*2\r\n:1\r\n:1", FENCE_EXPECT_PAIR) == FENCE_REPLY_LOST);
	/* and does not even try to allocate */
	CHECK(status_of("*9\r\n:1\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_LOST);
	CHECK(status_of("*2147483647\r\n", FENCE_EXPECT_PAIR) == FENCE_REPLY_LOST);
}

static void
test_problem(void)
{
	FenceReply	decoded = decode("-ERR a\tb\xff\0c\r\n", 13, FENCE_EXPECT_OK);
	char		longer[512];

	CHECK(strcmp(decoded.problem, "ERR a?b??c") == 0);
	decoded = decode_text("-ERR unknown command `AUTH`, with args beginning with: `secret`, \r\n",
						  FENCE_EXPECT_OK);
	CHECK(strcmp(decoded.problem, "ERR unknown command `AUTH`") == 0);
	memset(longer, 'x', sizeof(longer));
	fence_reply_problem(&decoded, FENCE_REPLY_UNREACHABLE, longer,
						sizeof(longer));
	CHECK(strlen(decoded.problem) == sizeof(decoded.problem) - 1);
	/* without what Redis 7 adds for a script, and without a full stop */
	decoded = decode_text("-OOM command not allowed. script: 0123abcd, on @user_script:1.\r\n", FENCE_EXPECT_OK);
	CHECK(strcmp(decoded.problem, "OOM command not allowed") == 0);
	decoded = decode_text("-ERR ACL failure in script: User x may not. script: 0123abcd, on @user_script:1.\r\n", FENCE_EXPECT_OK);
	CHECK(strcmp(decoded.problem, "ERR ACL failure in script: User x may not") == 0);
	decoded = decode_text("- script: 0a\r\n", FENCE_EXPECT_OK);
	CHECK(decoded.problem[0] == '\0');
}

static void
test_split(void)
{
	char		host[FENCE_HOST_MAX + 1];
	char		longer[FENCE_HOST_MAX + 8];
	int			port;

	CHECK(fence_reply_address("h:1", 3, host, &port) && strcmp(host, "h") == 0 && port == 1);
	CHECK(fence_reply_address("[::1]:26379", 11, host, &port) && strcmp(host, "::1") == 0 && port == 26379);
	CHECK(fence_reply_address("h:65535", 7, host, &port) && port == 65535);
	CHECK(!fence_reply_address("h:65536", 7, host, &port));
	CHECK(!fence_reply_address("h:000001", 8, host, &port));
	CHECK(!fence_reply_address("h:", 2, host, &port));
	CHECK(!fence_reply_address("h", 1, host, &port));
	CHECK(!fence_reply_address("", 0, host, &port));
	CHECK(!fence_reply_address("h:-1", 4, host, &port));

	memset(longer, 'x', sizeof(longer));
	memcpy(longer + FENCE_HOST_MAX, ":1", 2);
	CHECK(fence_reply_address(longer, FENCE_HOST_MAX + 2, host, &port) && strlen(host) == FENCE_HOST_MAX);
	memset(longer, 'x', sizeof(longer));
	memcpy(longer + FENCE_HOST_MAX + 1, ":1", 2);
	CHECK(!fence_reply_address(longer, FENCE_HOST_MAX + 3, host, &port));
}

int
main(void)
{
	test_ok();
	test_pair();
	test_address();
	test_error_words();
	test_redirects();
	test_not_redis();
	test_problem();
	test_split();
	return check_summary();
}
