/*
 * What a client does that asks Redis itself before it writes: GET over one
 * connection, UPDATE over another.
 *
 *	client COUNT get SOCKET		only the GET
 *	client COUNT both SOCKET	GET, then UPDATE
 *	client COUNT check SOCKET	UPDATE with fence.check(), nobody asks Redis
 *	client COUNT fence SOCKET	UPDATE with fence.check(), which asks Redis
 *
 * Prints the seconds of COUNT operations.  The server is that of PGHOST, ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <hiredis/hiredis.h>
#include <libpq-fe.h>

#define UPDATE "UPDATE one_plain SET qty = qty + 1 WHERE id = 1"

static const struct
{
	const char *name;
	int			get;
	const char *update;
}			modes[] = {
	{"get", 1, NULL},
	{"both", 1, UPDATE},
	{"check", 0, UPDATE " AND fence.check('stock:1', 33)"},
	{"fence", 0, UPDATE " AND fence.check('stock:1', 33, 'me', 'redis')"}
};

static void
fail(const char *what)
{
	fprintf(stderr, "client: %s\n", what);
	exit(1);
}

static void
ask(redisContext *redis)
{
	redisReply *reply = redisCommand(redis, "GET stock:1");

	if (reply == NULL || reply->type != REDIS_REPLY_STRING || strcmp(reply->str, "me") != 0)
		fail("the lease is not held in Redis");
	freeReplyObject(reply);
}

static void
expect(PGconn *conn, PGresult *result)
{
	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fail(PQerrorMessage(conn));
	PQclear(result);
}

int
main(int argc, char **argv)
{
	struct timespec begin;
	struct timespec end;
	redisContext *redis;
	PGconn	   *conn;
	int			mode = 0;
	int			i;

	while (argc == 4 && mode < 4 && strcmp(argv[2], modes[mode].name) != 0)
		mode++;
	if (argc != 4 || mode == 4)
		fail("usage: client COUNT get|both|check|fence SOCKET");
	redis = redisConnectUnix(argv[3]);
	if (redis == NULL || redis->err)
		fail("cannot connect to Redis");
	conn = PQconnectdb("");
	if (PQstatus(conn) != CONNECTION_OK)
		fail(PQerrorMessage(conn));
	if (modes[mode].update != NULL)
		expect(conn, PQprepare(conn, "write", modes[mode].update, 0, NULL));

	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (i = 0; i < atoi(argv[1]); i++)
	{
		if (modes[mode].get)
			ask(redis);
		if (modes[mode].update != NULL)
			expect(conn, PQexecPrepared(conn, "write", 0, NULL, NULL, NULL, 0));
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%.6f\n", (end.tv_sec - begin.tv_sec) + (end.tv_nsec - begin.tv_nsec) / 1e9);
	return 0;
}
