/*-------------------------------------------------------------------------
 *
 * redis_lease.c
 *	  Leases that Redis keeps: other clients' ones are verified, our own are
 *	  taken, prolonged and given back.
 *
 * Redis is a second opinion and can only say no: the order of tokens is
 * judged in any case.
 *
 * Each question is one script, so that the holder and the remaining life are
 * read at the same instant, and comparing and acting are one step.  Scripts
 * name one key, as clusters want it, and return two integers: what was found,
 * and the remaining life in milliseconds, -1 for no end.
 *
 * The scripts that only read begin with a command that Redis counts among the
 * writing ones, though it changes nothing: a replica refuses it, and so does
 * a master that has just become one.  What a replica says may be old.
 *
 * All scripts can be run twice: see redis_conn.c.
 *
 * IDENTIFICATION
 *	  src/redis_lease.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "replication/logicalworker.h"
#include "utils/builtins.h"

#include "digest.h"
#include "errors.h"
#include "redis_lease.h"

/* What scripts have found, the first integer of their answers. */
#define FOUND_NOTHING	0
#define FOUND_HOLDER	1		/* or done */
#define FOUND_OTHER		2
#define FOUND_SHARED	3		/* a lock that does not exclude others */

/* Longer lives of other clients' locks are told as this, a hundred years. */
#define REMAINING_MAX_MS	INT64CONST(3155760000000)

#define SCRIPT_NOT_RUN	"it does not run scripts as a Redis does"

typedef struct Script
{
	int			least;			/* what it can find */
	int			most;
	const char *text;
	char		sha1[2 * SHA1_DIGEST_LENGTH + 1];	/* empty: not computed */
} Script;

/* KEYS[1] the lock, ARGV[1] the holder */
static Script verify_scripts[] = {
	[FENCE_LAYOUT_STRING] = {
		.most = FOUND_SHARED,
		.text = "local v = redis.call('GETEX', KEYS[1]) "
		"if not v then return {0, 0} end "
		"return {v == ARGV[1] and 1 or 2, redis.call('PTTL', KEYS[1])}"
	},
	[FENCE_LAYOUT_PREFIX] = {
		.most = FOUND_SHARED,
		.text = "local v = redis.call('GETEX', KEYS[1]) "
		"if not v then return {0, 0} end "
		"return {string.sub(v, 1, #ARGV[1]) == ARGV[1] and 1 or 2, "
		"redis.call('PTTL', KEYS[1])}"
	},
	[FENCE_LAYOUT_HASH] = {
		.most = FOUND_SHARED,
		.text = "redis.call('HDEL', KEYS[1], '') "
		"if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0} end "
		"if ARGV[1] == 'mode' or redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 "
		"then return {2, 0} end "
		"if redis.call('HGET', KEYS[1], 'mode') == 'read' then return {3, 0} end "
		"return {1, redis.call('PTTL', KEYS[1])}"
	},
	[FENCE_LAYOUT_ZSET] = {
		.most = FOUND_SHARED,
		.text = "redis.call('ZREMRANGEBYSCORE', KEYS[1], 1, 0) "
		"if redis.call('EXISTS', KEYS[1]) == 0 then return {0, 0} end "
		"local s = redis.call('ZSCORE', KEYS[1], ARGV[1]) "
		"if not s or ARGV[1] == '__write__' then return {2, 0} end "
		"if not redis.call('ZSCORE', KEYS[1], '__write__') then return {3, 0} end "
		"local t = redis.call('TIME') "
		"local left = tonumber(s) - math.floor(t[1] * 1000 + t[2] / 1000) "
		"return {1, left < 0 and 0 or left}"
	}
};

/* KEYS[1] the lock, ARGV[1] our value, ARGV[2] the life in milliseconds */
static Script take_script = {
	.least = FOUND_HOLDER,
	.most = FOUND_OTHER,
	.text = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) "
	"or redis.call('GET', KEYS[1]) == ARGV[1] "
	"then return {1, redis.call('PTTL', KEYS[1])} end "
	"return {2, redis.call('PTTL', KEYS[1])}"
};
static Script prolong_script = {
	.least = FOUND_HOLDER,
	.most = FOUND_OTHER,
	.text = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {2, 0} end "
	"if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) "
	"then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end "
	"return {1, redis.call('PTTL', KEYS[1])}"
};
static Script give_back_script = {
	.least = FOUND_HOLDER,
	.most = FOUND_OTHER,
	.text = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {2, 0} end "
	"redis.call('DEL', KEYS[1]) return {1, 0}"
};

static void
compute_sha1(Script *script)
{
	uint8		digest[SHA1_DIGEST_LENGTH];

	fence_digest_begin(FENCE_SHA1);
	fence_digest_add(FENCE_SHA1, script->text, strlen(script->text));
	fence_digest_end(FENCE_SHA1, digest);
	hex_encode((const char *) digest, sizeof(digest), script->sha1);
}

/* What one script is run on. */
typedef struct Question
{
	Script	   *script;
	StringInfoData key;
	const char *holder;			/* or value */
	int64		life_ms;		/* 0: the script takes none */
	bool		unconditional;
} Question;

static void
start_question(Question *question, Script *script,
			   const FenceRedisOptions *options, const FenceName *name,
			   const char *holder, int64 life_ms)
{
	question->script = script;
	question->holder = holder;
	question->life_ms = life_ms;
	question->unconditional = false;
	initStringInfo(&question->key);
	if (options->key_prefix != NULL)
		appendStringInfoString(&question->key, options->key_prefix);
	appendBinaryStringInfo(&question->key, name->data, name->len);
}

/*
 * By its text, a script is sent when its digest was not known.  If that was
 * not the answer to the digest, there is one too many, and it must not meet
 * another question: so the connection ends there.
 */
static bool
call_script(FenceRedis *redis, const Question *question, bool by_text,
			double deadline, FenceReply *reply)
{
	const char *script = by_text ? question->script->text :
		question->script->sha1;
	FenceCommand command;
	char		life[32];

	fence_command_start(&command, by_text ? "EVAL" : "EVALSHA",
						FENCE_EXPECT_PAIR);
	command.unconditional = question->unconditional;
	command.last = by_text;
	fence_command_add(&command, script, strlen(script));
	fence_command_add(&command, "1", 1);
	fence_command_add(&command, question->key.data, question->key.len);
	fence_command_add(&command, question->holder, strlen(question->holder));
	if (question->life_ms > 0)
	{
		snprintf(life, sizeof(life), INT64_FORMAT, question->life_ms);
		fence_command_add(&command, life, strlen(life));
	}
	return fence_redis_call(redis, &command, deadline, reply);
}

/*
 * Runs the script, by its digest, or by its text where it is not known (any
 * more).  False if it cannot have been run.
 */
static bool
ask(FenceRedis *redis, const Question *question, FenceReply *reply)
{
	Script	   *script = question->script;
	double		deadline = fence_redis_deadline(redis);
	bool		sent;

	if (script->sha1[0] == '\0')
		compute_sha1(script);
	sent = call_script(redis, question, false, deadline, reply);
	if (reply->status == FENCE_REPLY_NO_SCRIPT)
		sent = call_script(redis, question, true, deadline, reply);
	if (reply->status == FENCE_REPLY_NO_SCRIPT ||
		(reply->status == FENCE_REPLY_GOOD &&
		 (reply->pair[0] < script->least || reply->pair[0] > script->most)))
		fence_reply_problem(reply, FENCE_REPLY_MISCONFIGURED,
							SCRIPT_NOT_RUN, strlen(SCRIPT_NOT_RUN));
	return sent;
}

static FenceVerdict *
unverified(const FenceName *name, const char *detail, const char *hint)
{
	FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_FENCE_LEASE_UNVERIFIED,
							psprintf("lease on resource \"%.*s\" could not be verified",
									 name->len, name->data),
							detail, hint);
	return fence_verdict_about(verdict, name, 0, 0);
}

/* PF006 or PF007 for a question that has no answer. */
static FenceVerdict *
no_answer(const char *server, const FenceName *name, const FenceReply *reply)
{
	const char *detail = psprintf("Server \"%s\": %s.", server,
								  reply->problem);
	FenceVerdict *verdict;

	if (reply->status == FENCE_REPLY_UNREACHABLE)
		return unverified(name, detail, "Retry later.");
	verdict = fence_verdict(ERRCODE_FENCE_STORE_MISCONFIGURED,
							psprintf("lease store \"%s\" is misconfigured",
									 server),
							detail,
							"Check the options of the server and of its user mapping, the user's rights in Redis, and what else uses this key.");
	return fence_verdict_about(verdict, name, 0, 0);
}

static FenceVerdict *
not_held(const FenceName *name, const char *detail)
{
	FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_FENCE_LEASE_NOT_HELD,
							psprintf("lease on resource \"%.*s\" is not held",
									 name->len, name->data),
							detail, "Stop, and acquire the resource again.");
	return fence_verdict_about(verdict, name, 0, 0);
}

static FenceVerdict *
judge_answer(const FenceRedisOptions *options, const char *server,
			 const FenceName *name, const FenceReply *reply)
{
	long long	life = reply->pair[1];

	switch (reply->pair[0])
	{
		case FOUND_HOLDER:
			break;
		case FOUND_SHARED:
			return not_held(name, psprintf("Server \"%s\" has a lock of this holder that others can share.",
										   server));
		case FOUND_OTHER:
			return not_held(name, psprintf("Server \"%s\" has a lock of another holder.",
										   server));
		default:				/* FOUND_NOTHING */
			return not_held(name, psprintf("Server \"%s\" has no lock for it.",
										   server));
	}
	if (life == -1)
		return options->allow_no_expiry ? NULL :
			not_held(name, psprintf("The lock in server \"%s\" has no expiry, so nobody would ever take it over.",
									server));
	if (life < Max(options->margin_ms, 1))
		return not_held(name, psprintf("The lock in server \"%s\" runs out in %lld ms, at least %d are required.",
									   server, life,
									   Max(options->margin_ms, 1)));
	return NULL;
}

/*
 * Finds the server of this name, and whether the user may use it.
 */
FenceVerdict *
fence_redis_find(const char *server, FenceRedis **redis)
{
	Oid			serverid;
	Oid			mapping;
	FenceVerdict *verdict;

	verdict = fence_redis_server_find(server, &serverid, &mapping);
	if (verdict == NULL)
		*redis = fence_redis(serverid, mapping);
	return verdict;
}

/*
 * Is this server to be asked when a token is presented, or at commit?
 */
bool
fence_redis_asked_at(const FenceRedis *redis, bool commit)
{
	FenceValidate validate = fence_redis_options(redis)->validate;

	return validate == FENCE_VALIDATE_BOTH ||
		(validate == FENCE_VALIDATE_COMMIT) == commit;
}

/*
 * Asks whether the lease stands of the holder who presents this token.  One
 * round trip.  The verdict points to the name.
 */
const FenceVerdict *
fence_redis_vouch(FenceRedis *redis, const char *server,
				  const FenceName *name, int64 token, const char *holder)
{
	const FenceRedisOptions *options = fence_redis_options(redis);
	FenceVerdict *verdict;
	Question	question;
	FenceReply	reply;

	if (IsLogicalWorker())
		return unverified(name, "Replication does not wait for other servers.",
						  "Verify leases where the rows are written.");

	start_question(&question, &verify_scripts[options->layout], options, name,
				   holder, 0);
	(void) ask(redis, &question, &reply);
	verdict = reply.status == FENCE_REPLY_GOOD ?
		judge_answer(options, server, name, &reply) :
		no_answer(server, name, &reply);
	if (verdict == NULL)
		return NULL;
	fence_verdict_about(verdict, name, token, 0);
	if (reply.status == FENCE_REPLY_UNREACHABLE && options->on_unreachable)
	{
		fence_verdict_report(WARNING, verdict, NULL);
		return NULL;
	}
	return verdict;
}

/*
 * Can a lease of our own be kept there, for so many microseconds?
 */
const FenceVerdict *
fence_redis_can_hold(const FenceRedis *redis, const char *server, int64 ttl)
{
	const FenceRedisOptions *options = fence_redis_options(redis);

	if (options->layout != FENCE_LAYOUT_STRING &&
		options->layout != FENCE_LAYOUT_PREFIX)
		return fence_verdict(ERRCODE_FEATURE_NOT_SUPPORTED,
							 psprintf("cannot take a lease in server \"%s\"",
									  server),
							 "Locks of its layout can be verified only.",
							 "Let the client library take the lock, or use layout \"string\".");
	if (ttl / 1000 <= options->margin_ms)
		return fence_verdict(ERRCODE_INVALID_PARAMETER_VALUE,
							 psprintf("ttl is too short for server \"%s\"",
									  server),
							 psprintf("Leases there must have a remaining life of %d ms.",
									  options->margin_ms),
							 "Ask for a longer one, or lower margin_ms.");
	return NULL;
}

/*
 * A value that nobody can guess.
 */
char *
fence_redis_new_value(void)
{
	uint8		random[FENCE_REDIS_VALUE_LEN / 2];
	char	   *value = palloc0(FENCE_REDIS_VALUE_LEN + 1);

	if (!pg_strong_random(random, sizeof(random)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate random values")));
	hex_encode((const char *) random, sizeof(random), value);
	return value;
}

static int64
milliseconds(int64 ttl)
{
	return Max(ttl / 1000, 1);
}

/*
 * Takes the lease, for ttl microseconds.  False if somebody else has it;
 * *remaining is then how long, in microseconds, 0 if that is not known.
 *
 * Raises PF006 or PF007 if there is no answer: then the lease may have been
 * taken, and is given back.
 */
bool
fence_redis_take(FenceRedis *redis, const char *server, const FenceName *name,
				 const char *value, int64 ttl, int64 *remaining)
{
	Question	question;
	FenceReply	reply;
	FenceReply	ignored;

	start_question(&question, &take_script, fence_redis_options(redis), name,
				   value, milliseconds(ttl));
	if (ask(redis, &question, &reply) && reply.status != FENCE_REPLY_GOOD)
	{
		question.script = &give_back_script;
		question.life_ms = 0;
		question.unconditional = true;
		(void) ask(redis, &question, &ignored);
	}
	if (reply.status != FENCE_REPLY_GOOD)
		fence_verdict_report(ERROR, no_answer(server, name, &reply), NULL);
	*remaining = Min(Max(reply.pair[1], 0), REMAINING_MAX_MS) * 1000L;
	return reply.pair[0] == FOUND_HOLDER;
}

/* For a lease that is recorded with a row; raises if the server is gone. */
static FenceRedis *
server_of_row(const char *server)
{
	FenceRedis *redis = NULL;

	fence_verdict_raise(ERROR, fence_redis_find(server, &redis), NULL);
	return redis;
}

/*
 * Lets the lease run for ttl microseconds at least, from now.  False if it is
 * lost; raises PF006 or PF007 if there is no answer.
 */
bool
fence_redis_prolong(const char *server, const FenceName *name,
					const char *value, int64 ttl)
{
	FenceRedis *redis = server_of_row(server);
	Question	question;
	FenceReply	reply;

	start_question(&question, &prolong_script, fence_redis_options(redis),
				   name, value, milliseconds(ttl));
	(void) ask(redis, &question, &reply);
	if (reply.status != FENCE_REPLY_GOOD)
		fence_verdict_report(ERROR, no_answer(server, name, &reply), NULL);
	return reply.pair[0] == FOUND_HOLDER;
}

/*
 * Gives the lease back.  It ends by itself if that fails, so this only warns.
 */
void
fence_redis_give_back(const char *server, const FenceName *name,
					  const char *value)
{
	FenceRedis *redis = NULL;
	const FenceVerdict *verdict = fence_redis_find(server, &redis);
	Question	question;
	FenceReply	reply;

	if (verdict == NULL)
	{
		start_question(&question, &give_back_script,
					   fence_redis_options(redis), name, value, 0);
		(void) ask(redis, &question, &reply);
		if (reply.status != FENCE_REPLY_GOOD)
			verdict = no_answer(server, name, &reply);
	}
	fence_verdict_raise(WARNING, verdict, NULL);
}
