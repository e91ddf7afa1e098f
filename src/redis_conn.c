/*-------------------------------------------------------------------------
 *
 * redis_conn.c
 *	  Connections to Redis that never block a backend.
 *
 * hiredis formats commands and parses replies; all waiting is done here, on
 * the socket and the latch at once, so that cancel, termination and
 * statement_timeout act at once.  (hiredis' own waiting repeats itself after
 * every signal and cannot be interrupted.)  One deadline on a monotonic clock
 * covers connecting, authentication, redirects and the command itself.
 *
 * A backend has one connection for each server and user mapping.  While a
 * connection is being made or a command has no complete answer, in_flight is
 * set; whoever leaves in that state, by an error, a timeout or a cancel,
 * closes the connection, because the late answer would be taken for that of
 * the next command.
 *
 * A command may be sent twice: when a connection kept from earlier turns out
 * to be dead or not to be the master any more, and when another node of a
 * cluster has the key.  All commands of ours can stand that.
 *
 * After a failure the server is left alone for a while (breaker_ms), so that
 * one dead server does not cost every statement a timeout: by this backend,
 * and by all where there is shared memory.
 *
 * Only the resolution of host names, in getaddrinfo(), cannot be interrupted
 * and minds no deadline.
 *
 * IDENTIFICATION
 *	  src/redis_conn.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/socket.h>

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/wait_event.h"

#include "compat.h"
#include "redis_breaker.h"
#include "redis_conn.h"
#include "redis_tls.h"
#include "stats.h"

/* Longer replies are none to our commands. */
#define REPLY_MAX		(64 * 1024)

/* A command and its answer need no more than these. */
#define REDIRECTS_MAX	2

struct FenceRedis
{
	FenceRedisKey key;
	bool		valid;			/* are the options those of the catalogs? */
	MemoryContext cxt;			/* holds the options */
	FenceRedisOptions options;

	redisContext *context;		/* NULL: closed */
	WaitEventSet *events;
	int			socket_event;	/* its position in there */
	bool		answered;		/* it has, at least once */
	bool		in_flight;		/* not fit for another command */

	FenceBreaker breaker;
};

/* Per backend. */
static HTAB *connections = NULL;

/* A monotonic clock, in milliseconds. */
static double
now_ms(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return INSTR_TIME_GET_MILLISEC(now);
}

static void
close_connection(FenceRedis *redis)
{
	if (redis->events != NULL)
		FreeWaitEventSet(redis->events);
	redis->events = NULL;
	if (redis->context != NULL)
	{
		redisFree(redis->context);
		ReleaseExternalFD();
	}
	redis->context = NULL;
	redis->answered = false;
	redis->in_flight = false;
}

static bool
failed(FenceReply *reply, FenceReplyStatus status, const char *problem)
{
	fence_reply_problem(reply, status, problem, strlen(problem));
	return false;
}

static bool
timed_out(FenceReply *reply)
{
	return failed(reply, FENCE_REPLY_LATE, "no answer in time");
}

/*
 * Waits until the socket is ready; false if the deadline comes first.
 */
static bool
wait_for(FenceRedis *redis, uint32 events, double deadline, FenceReply *reply)
{
	ModifyWaitEvent(redis->events, redis->socket_event, events, NULL);
	for (;;)
	{
		double		left = deadline - now_ms();
		WaitEvent	event;

		if (left <= 0)
			return timed_out(reply);
		if (WaitEventSetWait(redis->events, (long) left + 1, &event, 1,
							 PG_WAIT_EXTENSION) == 0)
			continue;
		if (event.events & WL_LATCH_SET)
		{
			ResetLatch(MyLatch);
			CHECK_FOR_INTERRUPTS();
		}
		else
			return true;
	}
}

/*
 * hiredis has recorded an error.  A lost connection can be made again; what
 * is no reply of a Redis will not be one the next time.
 */
static bool
hiredis_failed(const FenceRedis *redis, FenceReply *reply)
{
	const redisContext *context = redis->context;
	const char *objection = fence_redis_tls_objection(context);

	if (objection != NULL)
		return failed(reply, FENCE_REPLY_MISCONFIGURED,
					  psprintf("its certificate was not accepted: %s (host %s)",
							   objection, context->tcp.host));
	switch (context->err)
	{
		case REDIS_ERR_PROTOCOL:
			return failed(reply, FENCE_REPLY_MISCONFIGURED, context->errstr);
		case REDIS_ERR_OOM:		/* see fence_reply_reader() */
			return failed(reply, FENCE_REPLY_MISCONFIGURED,
						  "the reply is too long");
		case REDIS_ERR_IO:
			if (errno == 0 && !redis->answered)
				return failed(reply, FENCE_REPLY_MISCONFIGURED,
							  "the TLS handshake failed");
			return failed(reply, FENCE_REPLY_LOST, errno == 0 ?
						  "the TLS connection broke" : strerror(errno));
		default:
			return failed(reply, FENCE_REPLY_LOST, context->errstr);
	}
}

/*
 * With TLS a write can be waiting for a part of the handshake, and so for
 * something to read; commands are too short to fill the socket's buffer.
 */
static bool
send_command(FenceRedis *redis, double deadline, FenceReply *reply)
{
	uint32		events = redis->options.tls ? WL_SOCKET_READABLE :
		WL_SOCKET_WRITEABLE;
	int			done = 0;

	for (;;)
	{
		fence_redis_tls_forget_errors();
		errno = 0;
		if (redisBufferWrite(redis->context, &done) != REDIS_OK)
			return hiredis_failed(redis, reply);
		if (done)
			return true;
		if (!wait_for(redis, events, deadline, reply))
			return false;
	}
}

static bool
receive_reply(FenceRedis *redis, double deadline, FenceExpect expect,
			  FenceReply *reply)
{
	redisContext *context = redis->context;
	void	   *received = NULL;

	for (;;)
	{
		if (redisGetReplyFromReader(context, &received) != REDIS_OK)
			return hiredis_failed(redis, reply);
		if (received != NULL)
			break;
		if (context->reader->len > REPLY_MAX)
			return failed(reply, FENCE_REPLY_MISCONFIGURED,
						  "the reply is too long");
		if (!wait_for(redis, WL_SOCKET_READABLE, deadline, reply))
			return false;
		fence_redis_tls_forget_errors();
		errno = 0;
		if (redisBufferRead(context) != REDIS_OK)
			return hiredis_failed(redis, reply);
	}
	fence_reply_decode(received, expect, reply);
	freeReplyObject(received);

	/* more than was asked for: the next answer could not be told from it */
	if (context->reader->pos < context->reader->len)
		return failed(reply, FENCE_REPLY_MISCONFIGURED,
					  "more replies than commands");
	return true;
}

/*
 * Sends a command and receives the answer, whatever it is.  False if there
 * is none.  Unless the answer is one that fits the command, the connection
 * stays in flight: it may have been said unasked, and the real one is still
 * to come.
 */
static bool
exchange(FenceRedis *redis, const FenceCommand *command, double deadline,
		 FenceReply *reply)
{
	redis->in_flight = true;
	if (redisAppendCommandArgv(redis->context, command->count,
							   (const char **) command->words,
							   command->lengths) != REDIS_OK)
		return hiredis_failed(redis, reply);
	if (!send_command(redis, deadline, reply) ||
		!receive_reply(redis, deadline, command->expect, reply))
		return false;
	redis->answered = true;
	if (reply->status == FENCE_REPLY_GOOD ||
		reply->status == FENCE_REPLY_NO_SCRIPT)
		redis->in_flight = false;
	return true;
}

/* The same for what precedes the command: no other answer will do. */
static bool
exchange_good(FenceRedis *redis, const FenceCommand *command, double deadline,
			  FenceReply *reply)
{
	if (!exchange(redis, command, deadline, reply))
		return false;
	if (reply->status == FENCE_REPLY_GOOD)
		return true;
	redis->in_flight = true;
	if (reply->status == FENCE_REPLY_NO_SCRIPT)
		reply->status = FENCE_REPLY_MISCONFIGURED;
	return false;
}

/*
 * There was no good answer to AUTH, the first command on a connection.  Of a
 * bad one only the word that says why is shown: a server that does not know
 * the command quotes its arguments.
 */
static bool
refused(const FenceRedis *redis, FenceReply *reply)
{
	static const char *const words[] = {"WRONGPASS", "NOPERM", "ERR"};
	const char *word = "no word of Redis";
	int			i;

	if (!redis->answered || reply->status != FENCE_REPLY_MISCONFIGURED)
		return false;
	for (i = 0; i < (int) lengthof(words); i++)
	{
		if (strncmp(reply->problem, words[i], strlen(words[i])) == 0)
			word = words[i];
	}
	return failed(reply, FENCE_REPLY_MISCONFIGURED,
				  psprintf("AUTH was refused (%s)", word));
}

/*
 * AUTH and SELECT, as far as the options ask for them.
 */
static bool
introduce(FenceRedis *redis, double deadline, FenceReply *reply)
{
	const FenceRedisOptions *options = &redis->options;
	FenceCommand command;
	char		db[16];

	if (options->password != NULL)
	{
		fence_command_start(&command, "AUTH", FENCE_EXPECT_OK);
		if (options->username != NULL)
			fence_command_add(&command, options->username,
							  strlen(options->username));
		fence_command_add(&command, options->password,
						  strlen(options->password));
		if (!exchange_good(redis, &command, deadline, reply))
			return refused(redis, reply);
	}
	if (options->db != 0)
	{
		snprintf(db, sizeof(db), "%d", options->db);
		fence_command_start(&command, "SELECT", FENCE_EXPECT_OK);
		fence_command_add(&command, db, strlen(db));
		if (!exchange_good(redis, &command, deadline, reply))
			return false;
	}
	return true;
}

/*
 * Accounts for the socket, and makes sure that there is room for the event
 * set, too: that one would complain in words of its own.
 */
static void
acquire_fds(void)
{
	bool		first = AcquireExternalFD();
	bool		second = first && AcquireExternalFD();

	if (first)
		ReleaseExternalFD();
	if (second)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
			 errmsg("could not connect to Redis: too many open files in this session"),
			 errhint("Name fewer servers in one session, or raise max_files_per_process.")));
}

/* Opens the socket.  The caller waits until it is connected. */
static bool
open_socket(FenceRedis *redis, const char *host, int port, FenceReply *reply)
{
	redisReader *reader;

	acquire_fds();
	redis->context = host == NULL ?
		redisConnectUnixNonBlock(redis->options.socket) :
		redisConnectNonBlock(host, port);
	reader = fence_reply_reader();
	if (redis->context == NULL || reader == NULL)
	{
		if (reader != NULL)
			redisReaderFree(reader);
		if (redis->context == NULL)
			ReleaseExternalFD();
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("hiredis could not allocate a connection.")));
	}
	redisReaderFree(redis->context->reader);
	redis->context->reader = reader;
	/* else a host that died is found out by the first question, too late */
	if (redis->context->err == 0 && host != NULL)
		(void) redisEnableKeepAlive(redis->context);
	if (redis->context->err != 0)
		return failed(reply, FENCE_REPLY_UNREACHABLE, redis->context->errstr);
	return true;
}

static void
watch_socket(FenceRedis *redis)
{
	redis->events = fence_wait_event_set(3);
	AddWaitEventToSet(redis->events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch,
					  NULL);
	if (IsUnderPostmaster)
		AddWaitEventToSet(redis->events, WL_EXIT_ON_PM_DEATH,
						  PGINVALID_SOCKET, NULL, NULL);
	redis->socket_event = AddWaitEventToSet(redis->events,
											WL_SOCKET_WRITEABLE,
											redis->context->fd, NULL, NULL);
}

static bool
connected(FenceRedis *redis, FenceReply *reply)
{
	int			error = 0;
	socklen_t	len = sizeof(error);

	if (getsockopt(redis->context->fd, SOL_SOCKET, SO_ERROR, &error,
				   &len) != 0)
		error = errno;
	return error == 0 || failed(reply, FENCE_REPLY_UNREACHABLE,
								strerror(error));
}

/*
 * Connects to a host, or to the socket of the options if that is NULL, as far
 * as TLS; leaves the connection in flight.
 */
static bool
connect_to(FenceRedis *redis, const char *host, int port, double deadline,
		   FenceReply *reply)
{
	const char *problem;

	close_connection(redis);
	redis->in_flight = true;
	if (!open_socket(redis, host, port, reply))
		return false;
	watch_socket(redis);
	if (!wait_for(redis, WL_SOCKET_WRITEABLE, deadline, reply) ||
		!connected(redis, reply))
		return false;
	if (!redis->options.tls)
		return true;
	problem = fence_redis_tls_start(redis->context, redis->options.ca_file,
									host);
	if (problem != NULL)
		return failed(reply, FENCE_REPLY_MISCONFIGURED, problem);
	return redis->context->err == 0 || hiredis_failed(redis, reply);
}

static bool
connect_and_introduce(FenceRedis *redis, const char *host, int port,
					  double deadline, FenceReply *reply)
{
	if (!connect_to(redis, host, port, deadline, reply) ||
		!introduce(redis, deadline, reply))
		return false;
	redis->in_flight = false;
	return true;
}

static bool
ask_sentinel(FenceRedis *redis, const char *host, int port, double deadline,
			 FenceReply *reply)
{
	const char *master = redis->options.master_name;
	FenceCommand command;

	fence_command_start(&command, "SENTINEL", FENCE_EXPECT_ADDRESS);
	fence_command_add(&command, "get-master-addr-by-name",
					  strlen("get-master-addr-by-name"));
	fence_command_add(&command, master, strlen(master));
	if (!connect_to(redis, host, port, deadline, reply))
		return false;
	if (exchange_good(redis, &command, deadline, reply))
		return true;
	return reply->status == FENCE_REPLY_NOTHING ?
		failed(reply, FENCE_REPLY_MISCONFIGURED,
			   "the sentinels know no master of this name") : false;
}

/*
 * Asks one sentinel after the other, and leaves half of the time to the
 * rest: the first one may be the machine that has just died.
 */
static bool
find_master(FenceRedis *redis, double deadline, FenceReply *reply)
{
	const char *next = redis->options.sentinel;
	char		host[FENCE_HOST_MAX + 1];
	int			port;
	double		now;

	while (next != NULL && *next != '\0')
	{
		next = fence_next_sentinel(next, host, &port);
		now = now_ms();
		if (next != NULL &&
			ask_sentinel(redis, host, port, now + (deadline - now) / 2, reply))
			return true;
	}
	return false;
}

/*
 * Connects to where the options say.
 */
static bool
open_connection(FenceRedis *redis, double deadline, FenceReply *reply)
{
	FenceReply	master;

	if (redis->options.sentinel == NULL)
		return connect_and_introduce(redis, redis->options.host,
									 redis->options.port, deadline, reply);
	if (!find_master(redis, deadline, reply))
		return false;
	master = *reply;
	return connect_and_introduce(redis, master.host, master.port, deadline,
								 reply);
}

/*
 * The node that has the key now.  An empty host stands for the one that
 * answered.
 */
static bool
follow(FenceRedis *redis, double deadline, FenceReply *reply)
{
	FenceReply	redirect = *reply;
	FenceCommand asking;

	if (redirect.host[0] == '\0' && redis->context->tcp.host != NULL)
		strlcpy(redirect.host, redis->context->tcp.host,
				sizeof(redirect.host));
	if (!connect_and_introduce(redis, redirect.host, redirect.port, deadline,
							   reply))
		return false;
	if (redirect.status != FENCE_REPLY_ASK)
		return true;
	fence_command_start(&asking, "ASKING", FENCE_EXPECT_OK);
	return exchange_good(redis, &asking, deadline, reply);
}

/*
 * Is there nothing to read on a connection that nothing was asked on?  Else
 * it has ended, or what is there would be taken for the next answer.
 */
static bool
is_quiet(const FenceRedis *redis)
{
	char		unused;

	return recv(redis->context->fd, &unused, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
		(errno == EAGAIN || errno == EWOULDBLOCK);
}

/* How far a command has come. */
typedef enum CallResult
{
	CALL_NOT_SENT,
	CALL_NOT_ANSWERED,			/* it may have been carried out */
	CALL_ANSWERED
} CallResult;

/*
 * The command, with whatever it takes to get it answered.
 */
static CallResult
call(FenceRedis *redis, const FenceCommand *command, double deadline,
	 FenceReply *reply)
{
	bool		retry;
	bool		asked = false;	/* only this one command is served there */
	int			redirects = 0;

	if (redis->context != NULL && !is_quiet(redis))
		close_connection(redis);
	retry = redis->context != NULL;
	if (!retry && !open_connection(redis, deadline, reply))
		return CALL_NOT_SENT;
	for (;;)
	{
		bool		answered = exchange(redis, command, deadline, reply);

		if (asked || command->last)
			redis->in_flight = true;
		if (answered && (reply->status == FENCE_REPLY_MOVED ||
						 reply->status == FENCE_REPLY_ASK) &&
			redirects++ < REDIRECTS_MAX)
		{
			asked = reply->status == FENCE_REPLY_ASK;
			if (!follow(redis, deadline, reply))
				return CALL_NOT_ANSWERED;
		}
		else if (retry && (reply->status == FENCE_REPLY_LOST ||
						   reply->status == FENCE_REPLY_READ_ONLY))
		{
			retry = false;
			if (!open_connection(redis, deadline, reply))
				return CALL_NOT_ANSWERED;
		}
		else
			return answered ? CALL_ANSWERED : CALL_NOT_ANSWERED;
	}
}

/*
 * What is left to the caller are the two kinds of failure that he can tell
 * apart: it passes, or it does not.  Returns the kind that is counted.
 */
static FenceRedisOutcome
settle(FenceReply *reply)
{
	switch (reply->status)
	{
		case FENCE_REPLY_GOOD:
		case FENCE_REPLY_NOTHING:
		case FENCE_REPLY_NO_SCRIPT:
			return FENCE_REDIS_ANSWERED;
		case FENCE_REPLY_MISCONFIGURED:
			return FENCE_REDIS_MISCONFIGURED;
		case FENCE_REPLY_LATE:
			reply->status = FENCE_REPLY_UNREACHABLE;
			return FENCE_REDIS_TIMED_OUT;
		case FENCE_REPLY_MOVED:
		case FENCE_REPLY_ASK:
		case FENCE_REPLY_READ_ONLY:
		case FENCE_REPLY_UNABLE:
			reply->status = FENCE_REPLY_UNREACHABLE;
			return FENCE_REDIS_UNABLE;
		case FENCE_REPLY_LOST:
		case FENCE_REPLY_UNREACHABLE:
			break;
	}
	reply->status = FENCE_REPLY_UNREACHABLE;
	return FENCE_REDIS_UNREACHABLE;
}

static bool
breaker_is_open(FenceRedis *redis, FenceReply *reply)
{
	double		now = now_ms();
	FenceBreaker breaker = redis->breaker;
	const char *problem;

	if (breaker.open_until <= now &&
		!fence_breaker_shared(&redis->key, redis->options.fingerprint, now,
							  &breaker))
		return false;
	problem = psprintf("not tried again for %.0f ms after: %s",
					   breaker.open_until - now, breaker.failure.problem);
	(void) failed(reply, breaker.failure.status, problem);
	return true;
}

/*
 * Opens the breaker after a failure to connect or to get an answer, but not
 * after an answer that is about this one key.
 */
static void
mind_failure(FenceRedis *redis, const FenceReply *reply, CallResult result)
{
	double		now = now_ms();

	if (reply->status != FENCE_REPLY_UNREACHABLE &&
		(reply->status != FENCE_REPLY_MISCONFIGURED ||
		 result == CALL_ANSWERED))
		return;
	redis->breaker.failure = *reply;
	redis->breaker.open_until = now + redis->options.breaker_ms;
	redis->breaker.options = redis->options.fingerprint;
	fence_breaker_share(&redis->key, now, &redis->breaker);
}

/*
 * Sends a command and receives the answer, by the deadline.  The status of
 * the reply is GOOD, NO_SCRIPT, UNREACHABLE or MISCONFIGURED.  Returns
 * whether the command has been sent, so that it may have been carried out
 * even without an answer.  Raises only what interrupts the statement.
 */
bool
fence_redis_call(FenceRedis *redis, const FenceCommand *command,
				 double deadline, FenceReply *reply)
{
	volatile CallResult result = CALL_NOT_SENT;
	double		start = now_ms();
	FenceRedisOutcome outcome;

	if (!command->unconditional && breaker_is_open(redis, reply))
		return false;
	PG_TRY();
	{
		result = call(redis, command, deadline, reply);
	}
	PG_FINALLY();
	{
		if (redis->in_flight)
			close_connection(redis);
	}
	PG_END_TRY();
	outcome = settle(reply);
	fence_stats_redis(redis->key.server,
					  (int64) ((now_ms() - start) * 1000.0), outcome);
	mind_failure(redis, reply, result);
	return result != CALL_NOT_SENT;
}

/*
 * The deadline of an exchange that begins now.
 */
double
fence_redis_deadline(const FenceRedis *redis)
{
	return now_ms() + redis->options.timeout_ms;
}

void
fence_command_add(FenceCommand *command, const char *word, size_t len)
{
	Assert(command->count < FENCE_COMMAND_MAX);
	command->words[command->count] = word;
	command->lengths[command->count] = len;
	command->count++;
}

void
fence_command_start(FenceCommand *command, const char *word,
					FenceExpect expect)
{
	command->count = 0;
	command->expect = expect;
	command->unconditional = false;
	command->last = false;
	fence_command_add(command, word, strlen(word));
}

static void
invalidate(Datum arg, int cacheid, uint32 hashvalue)
{
	HASH_SEQ_STATUS status;
	FenceRedis *redis;

	hash_seq_init(&status, connections);
	while ((redis = hash_seq_search(&status)) != NULL)
		redis->valid = false;
}

/* Once per backend, when it first needs a connection. */
static void
create_connections(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(FenceRedisKey);
	ctl.entrysize = sizeof(FenceRedis);
	connections = hash_create("pg_fence connections to Redis", 8, &ctl,
							  HASH_ELEM | HASH_BLOBS);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, invalidate, (Datum) 0);
	CacheRegisterSyscacheCallback(USERMAPPINGOID, invalidate, (Datum) 0);
}

/*
 * Options have changed, of this server or another: start anew everywhere.
 * The entry of a server that is gone keeps no connection that way.
 */
static void
close_invalid(void)
{
	HASH_SEQ_STATUS status;
	FenceRedis *redis;

	hash_seq_init(&status, connections);
	while ((redis = hash_seq_search(&status)) != NULL)
	{
		if (!redis->valid)
			close_connection(redis);
	}
}

/*
 * Into a context of its own, so that an error leaves the old options whole:
 * somebody may have to ask by them at commit.
 */
static void
read_options(FenceRedis *redis)
{
	MemoryContext cxt = AllocSetContextCreate(CurrentMemoryContext,
											  "pg_fence server options",
											  ALLOCSET_SMALL_SIZES);
	MemoryContext oldcxt = MemoryContextSwitchTo(cxt);
	FenceRedisOptions options;

	fence_redis_server_options(redis->key.server, redis->key.mapping,
							   &options);
	MemoryContextSwitchTo(oldcxt);

	if (redis->cxt != NULL)
	{
		/* what went wrong by the old ones may go well now */
		close_invalid();
		redis->breaker.open_until = 0;
		MemoryContextDelete(redis->cxt);
	}
	MemoryContextSetParent(cxt, CacheMemoryContext);
	redis->cxt = cxt;
	redis->options = options;
	redis->valid = true;
}

/*
 * The connection for a server and a user mapping.  It is opened by the first
 * call.
 */
FenceRedis *
fence_redis(Oid server, Oid mapping)
{
	FenceRedisKey key = {server, mapping};
	FenceRedis *redis;
	bool		found;

	if (connections == NULL)
		create_connections();
	redis = hash_search(connections, &key, HASH_ENTER, &found);
	if (!found)
	{
		memset(redis, 0, sizeof(FenceRedis));
		redis->key = key;
	}
	if (!redis->valid)
		read_options(redis);
	return redis;
}

const FenceRedisOptions *
fence_redis_options(const FenceRedis *redis)
{
	return &redis->options;
}
