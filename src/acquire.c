/*-------------------------------------------------------------------------
 *
 * acquire.c
 *	  Granting leases under new tokens: acquire, acquire_many, hand_over.
 *
 * A refused attempt must not disturb the holder.  Hence the order in
 * acquire(): look without any lock, take the gate without queueing for it,
 * look again, and ask for the takeover lock, which makes the old holder's
 * commits fail, only once it is decided that the lease is over.  Then that
 * lock is queued for: late sessions of the old holder that commit all the
 * time would never leave a gap to somebody who only tries.
 *
 * A lease that a server outside keeps as well is taken there in between,
 * under the gate: earlier it could be for nothing, later the takeover lock
 * would be held while that server is waited for.  What is done there is not
 * rolled back.
 *
 * All instants are read after the locks, see lease.c.
 *
 * IDENTIFICATION
 *	  src/acquire.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "funcapi.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "args.h"
#include "attempt.h"
#include "lease.h"
#include "lease_end.h"
#include "present.h"
#include "redis_lease.h"
#include "stats.h"
#include "wait_queue.h"

PG_FUNCTION_INFO_V1(fence_acquire);
PG_FUNCTION_INFO_V1(fence_acquire_many);
PG_FUNCTION_INFO_V1(fence_hand_over);

#define WAIT_MAX		(5 * USECS_PER_MINUTE)
#define REQUEST_ID_MAX	255

/* How long the commits of an old holder are waited for at least. */
#define TAKEOVER_MS		50

/* Between two looks at a lease that is waited for, milliseconds. */
#define POLL_MIN_MS		5
#define POLL_MAX_MS		25

/* The same for those who are not the first that wait. */
#define QUEUE_POLL_MS	250

typedef struct AcquireRequest
{
	FenceName	name;
	char	   *holder;
	char	   *request_id;		/* or NULL */
	int64		ttl;			/* microseconds */
	int64		wait;			/* microseconds */

	/* where a server keeps the lease as well; all NULL or 0 otherwise */
	const char *lease;
	FenceRedis *redis;
	char	   *lease_value;
	TimestampTz leased_at;		/* a moment before it was taken there */
} AcquireRequest;

typedef enum AcquireOutcome
{
	ACQUIRE_FREE,				/* and its gate is ours */
	ACQUIRE_GRANTED,
	ACQUIRE_HELD,
	ACQUIRE_HELD_OUTSIDE,		/* a client of the server has it */
	ACQUIRE_BUSY,
	ACQUIRE_NOT_ALL				/* another one of acquire_many() was not */
} AcquireOutcome;

/* What acquire_many() has found for one of its resources. */
typedef struct AcquireResult
{
	FenceName	name;
	AcquireOutcome outcome;
	FenceRow	row;
} AcquireResult;

/*
 * Under REPEATABLE READ and SERIALIZABLE the work needs a snapshot younger
 * than the acquisition; fence_present() refuses a token acquired in the same
 * transaction, and this refuses to acquire once work has been done.
 */
static void
check_own_transaction(const char *function)
{
	if (!IsolationUsesXactSnapshot() ||
		(!TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		 !fence_presented_any()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("%s must run in a transaction of its own at this isolation level",
					function),
			 errdetail("The transaction's snapshot is older than the acquisition and may miss the last commit of the previous holder."),
			 errhint("Acquire first, commit, and present the token in the next transaction.")));
}

/*
 * The lost reply of an acquisition is asked for again.
 */
static bool
is_repeated(const AcquireRequest *request, const FenceRow *row)
{
	return request->request_id != NULL && row->request_id != NULL &&
		strcmp(request->request_id, row->request_id) == 0 &&
		strcmp(request->holder, row->holder) == 0 &&
		row->token == row->mark;
}

static AcquireOutcome
live_outcome(const AcquireRequest *request, const FenceRow *row)
{
	return is_repeated(request, row) ? ACQUIRE_GRANTED : ACQUIRE_HELD;
}

/*
 * First half of an attempt, writes nothing: looks, takes the gate, looks
 * again.  Only ACQUIRE_FREE keeps the gate.
 */
static AcquireOutcome
reserve(const AcquireRequest *request, FenceRow *row)
{
	fence_row_read(&request->name, row);
	if (fence_lease_live(row, GetCurrentTimestamp()))
		return live_outcome(request, row);

	if (!fence_wait_turn(&request->name) ||
		!fence_lease_lock(&request->name, FENCE_LOCK_GATE))
		return ACQUIRE_BUSY;
	fence_row_read(&request->name, row);
	if (fence_lease_live(row, GetCurrentTimestamp()))
	{
		fence_unlock(&request->name, FENCE_LOCK_GATE);
		return live_outcome(request, row);
	}
	return ACQUIRE_FREE;
}

/*
 * Decided: takes the takeover lock.  Commits of the old holder that have been
 * judged are waited for; prepared transactions of his can take longer than
 * we do.
 */
static bool
lock_takeover(const FenceName *name, double patience_ms)
{
	return fence_lock_nowait(name, FENCE_LOCK_TAKEOVER) ||
		fence_lock_within(name, FENCE_LOCK_TAKEOVER,
						  (int) Max(patience_ms, TAKEOVER_MS));
}

/*
 * Under gate and takeover lock.
 */
static void
grant(const AcquireRequest *request, FenceRow *row)
{
	TimestampTz now = GetCurrentTimestamp();
	const FenceVerdict *verdict;

	verdict = fence_present_judge_move(&request->name, row);
	if (verdict != NULL)
		fence_verdict_report(ERROR, verdict, NULL);

	fence_lease_granted(&request->name, row, request->holder, now);
	row->token = row->mark = fence_lease_next_token(&request->name, row);
	row->mark_holder = row->holder = request->holder;
	row->marked_at = row->acquired_at = now;
	row->request_id = request->request_id;
	row->expires_at = (request->lease == NULL ? now : request->leased_at) +
		request->ttl;
	row->released = false;
	row->renewals = 0;
	row->home = fence_home();
	row->lease = unconstify(char *, request->lease);
	row->lease_value = request->lease_value;
	fence_row_write(&request->name, row);
	fence_present_moved(&request->name, row->token, row->holder);
}

/* Has the server's lease nearly run out while we waited? */
static bool
came_too_late(const AcquireRequest *request)
{
	return request->redis != NULL &&
		GetCurrentTimestamp() - request->leased_at >= request->ttl -
		fence_redis_options(request->redis)->margin_ms * 1000L;
}

/*
 * Second half, for one resource.  False, and the gate given back, if the
 * takeover lock is not to be had, or not soon enough.
 */
static bool
take_over(const AcquireRequest *request, double patience_ms, FenceRow *row)
{
	bool		locked = lock_takeover(&request->name, patience_ms);

	if (locked && !came_too_late(request))
	{
		grant(request, row);
		return true;
	}
	if (locked)
		fence_unlock(&request->name, FENCE_LOCK_TAKEOVER);
	fence_unlock(&request->name, FENCE_LOCK_GATE);
	return false;
}

/*
 * Takes the lease where the server keeps it, if one is to.
 */
static AcquireOutcome
take_outside(AcquireRequest *request, FenceRow *row)
{
	int64		remaining;

	if (request->redis == NULL)
		return ACQUIRE_FREE;
	request->leased_at = GetCurrentTimestamp();
	if (fence_redis_take(request->redis, request->lease, &request->name,
						 request->lease_value, request->ttl, &remaining))
		return ACQUIRE_FREE;
	row->expires_at = remaining == 0 ? 0 : GetCurrentTimestamp() + remaining;
	return ACQUIRE_HELD_OUTSIDE;
}

static double
patience_left(const AcquireRequest *request, double waited_ms)
{
	return request->wait / 1000.0 - waited_ms;
}

/*
 * One attempt; what is left of the wait goes to the takeover lock.
 */
static AcquireOutcome
acquire_once(AcquireRequest *request, double waited_ms, FenceRow *row)
{
	AcquireOutcome outcome = reserve(request, row);

	if (outcome != ACQUIRE_FREE)
		return outcome;
	outcome = take_outside(request, row);
	if (outcome != ACQUIRE_FREE)
	{
		fence_unlock(&request->name, FENCE_LOCK_GATE);
		return outcome;
	}
	if (take_over(request, patience_left(request, waited_ms), row))
		return ACQUIRE_GRANTED;
	if (request->redis != NULL)
		fence_redis_give_back(request->lease, &request->name,
							  request->lease_value);
	return ACQUIRE_BUSY;
}

/*
 * Time to the next look: a random share, so that waiters do not march in
 * step, and no more than is left of the wait.  Those who are not the first
 * in the queue will be woken, and look by themselves only to be sure.
 *
 * Raises 55P03 when lock_timeout is over before the wait is; the lock manager
 * minds it only for its own queues.
 */
static long
next_nap(const AcquireRequest *request, double waited_ms, bool first)
{
	double		left_ms = request->wait / 1000.0 - waited_ms;
	long		poll_ms = QUEUE_POLL_MS;

	if (LockTimeout > 0)
	{
		if (waited_ms >= LockTimeout)
			ereport(ERROR,
					(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					 errmsg("canceling statement due to lock timeout")));
		left_ms = Min(left_ms, LockTimeout - waited_ms);
	}
	if (first)
		poll_ms = (long) pg_prng_uint64_range(&pg_global_prng_state,
											  POLL_MIN_MS, POLL_MAX_MS);
	return (long) Max(1, Min(left_ms, poll_ms));
}

/* Waits in the queue for a resource, until it is time to look again. */
static void
wait_in_queue(const AcquireRequest *request, const FenceName *name,
			  double waited_ms)
{
	bool		first = fence_wait_join(name);

	fence_lease_nap(next_nap(request, waited_ms, first));
}

static AcquireOutcome
acquire(AcquireRequest *request, FenceRow *row)
{
	MemoryContext attempt;
	MemoryContext oldcxt;
	AcquireOutcome outcome;
	instr_time	start;
	double		waited_ms = 0;
	bool		waits = false;

	attempt = AllocSetContextCreate(CurrentMemoryContext,
									"pg_fence acquire",
									ALLOCSET_SMALL_SIZES);
	INSTR_TIME_SET_CURRENT(start);
	for (;;)
	{
		oldcxt = MemoryContextSwitchTo(attempt);
		outcome = acquire_once(request, waited_ms, row);
		MemoryContextSwitchTo(oldcxt);

		if (!waits)
			fence_stats_attempt(&request->name, outcome != ACQUIRE_GRANTED);
		waited_ms = fence_elapsed_ms(start);
		if (outcome == ACQUIRE_GRANTED || waited_ms * 1000.0 >= request->wait)
			break;
		waits = true;
		wait_in_queue(request, &request->name, waited_ms);
		MemoryContextReset(attempt);
	}
	fence_wait_leave();
	return outcome;
}

#define ACQUIRE_COLUMNS	6

/* (acquired, token, expires_at, remaining, held_by, reason) */
static void
acquire_columns(AcquireOutcome outcome, const char *reason,
				const FenceRow *row, Datum *values, bool *nulls)
{
	memset(nulls, true, ACQUIRE_COLUMNS * sizeof(bool));
	values[0] = BoolGetDatum(outcome == ACQUIRE_GRANTED);
	nulls[0] = false;
	if (outcome == ACQUIRE_GRANTED)
	{
		values[1] = Int64GetDatum(row->token);
		nulls[1] = false;
	}
	if (outcome == ACQUIRE_GRANTED || outcome == ACQUIRE_HELD)
	{
		values[2] = TimestampTzGetDatum(row->expires_at);
		values[3] = fence_lease_remaining(row->expires_at);
		values[4] = CStringGetTextDatum(row->holder);
		nulls[2] = nulls[3] = nulls[4] = false;
	}
	if (outcome == ACQUIRE_HELD_OUTSIDE && row->expires_at != 0)
	{
		values[2] = TimestampTzGetDatum(row->expires_at);
		values[3] = fence_lease_remaining(row->expires_at);
		nulls[2] = nulls[3] = false;
	}
	if (reason != NULL)
	{
		values[5] = CStringGetTextDatum(reason);
		nulls[5] = false;
	}
}

static const char *
outcome_reason(AcquireOutcome outcome)
{
	static const char *const reasons[] = {
		[ACQUIRE_FREE] = NULL,
		[ACQUIRE_GRANTED] = NULL,
		[ACQUIRE_HELD] = "held",
		[ACQUIRE_HELD_OUTSIDE] = "held",
		[ACQUIRE_BUSY] = "busy",
		[ACQUIRE_NOT_ALL] = "not all"
	};

	return reasons[outcome];
}

static Datum
acquire_result(FunctionCallInfo fcinfo, AcquireOutcome outcome,
			   const char *reason, const FenceRow *row)
{
	Datum		values[ACQUIRE_COLUMNS];
	bool		nulls[ACQUIRE_COLUMNS];

	acquire_columns(outcome, reason, row, values, nulls);
	return fence_result_row(fcinfo, values, nulls);
}

/*
 * The server that is to keep the lease as well, if it can.
 */
static void
find_store(const char *lease, AcquireRequest *request)
{
	const FenceVerdict *problem;

	if (!fence_lease_in_store(lease))
		return;
	problem = fence_redis_find(lease, &request->redis);
	if (problem == NULL)
		problem = fence_redis_can_hold(request->redis, lease, request->ttl);
	fence_verdict_raise(ERROR, problem, NULL);
	request->lease = lease;
	request->lease_value = fence_redis_new_value();
}

/*
 * fence.acquire(resource text, holder text, ttl interval, wait interval,
 *				 request_id text, lease text)
 *
 * ttl 1 ms to 1 day, wait 0 to 5 minutes.  A refusal is a row, not an error.
 */
Datum
fence_acquire(PG_FUNCTION_ARGS)
{
	AcquireRequest request = {0};
	AcquireOutcome outcome;
	FenceRow	row;

	fence_prevent_read_only("fence.acquire()");
	request.name = fence_arg_name(fcinfo, 0);
	request.holder = fence_arg_text(fcinfo, 1, "holder", FENCE_RESOURCE_MAX,
									false);
	request.ttl = fence_arg_duration(fcinfo, 2, "ttl", FENCE_TTL_MIN, FENCE_TTL_MAX);
	request.wait = fence_arg_duration(fcinfo, 3, "wait", 0, WAIT_MAX);
	request.request_id = fence_arg_text(fcinfo, 4, "request_id",
										REQUEST_ID_MAX, true);
	find_store(fence_arg_text(fcinfo, 5, "lease", NAMEDATALEN, false),
			   &request);
	check_own_transaction("fence.acquire()");

	outcome = acquire(&request, &row);
	PG_RETURN_DATUM(acquire_result(fcinfo, outcome, outcome_reason(outcome),
								   &row));
}

static int
compare_names(const void *a, const void *b)
{
	const FenceName *left = &((const AcquireResult *) a)->name;
	const FenceName *right = &((const AcquireResult *) b)->name;
	int			order = memcmp(left->data, right->data,
							   Min(left->len, right->len));

	return order != 0 ? order : left->len - right->len;
}

/*
 * The resources of an array, in order and each once.  Everybody acquires
 * them in the same order, so that two who want the same ones do not both
 * come away with half of them.
 */
static AcquireResult *
sorted_resources(FunctionCallInfo fcinfo, int n, int *count)
{
	AcquireResult *results;
	Datum	   *names;
	bool	   *nulls;
	int			i;
	int			distinct = 0;

	fence_arg_not_null(fcinfo, n, "array of resources");
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(n), TEXTOID, -1, false,
					  TYPALIGN_INT, &names, &nulls, count);
	results = palloc0(Max(*count, 1) * sizeof(AcquireResult));
	for (i = 0; i < *count; i++)
		results[i].name = fence_datum_name(names[i], nulls[i]);
	qsort(results, *count, sizeof(AcquireResult), compare_names);
	for (i = 0; i < *count; i++)
	{
		if (distinct == 0 ||
			compare_names(&results[i], &results[distinct - 1]) != 0)
			results[distinct++] = results[i];
	}
	*count = distinct;
	return results;
}

/* One was refused, so none is granted. */
static bool
refuse_all(AcquireResult *results, int count, int refused,
		   AcquireOutcome outcome)
{
	int			i;

	for (i = 0; i < count; i++)
		results[i].outcome = (i == refused) ? outcome : ACQUIRE_NOT_ALL;
	return false;
}

/* All that acquire_many() wants. */
typedef struct ManyRequest
{
	AcquireRequest each;		/* with the name of one after the other */
	AcquireResult *results;
	int			count;
	double		waited_ms;
} ManyRequest;

/*
 * One attempt at all of them: first all the gates, then all the takeover
 * locks, and only when they are all there, the rows.  What a refused attempt
 * has locked goes with its subtransaction.
 */
static bool
acquire_all(void *arg)
{
	ManyRequest *many = arg;
	AcquireResult *results = many->results;
	double		left_ms = patience_left(&many->each, many->waited_ms);
	AcquireOutcome outcome;
	int			i;

	for (i = 0; i < many->count; i++)
	{
		many->each.name = results[i].name;
		outcome = reserve(&many->each, &results[i].row);
		if (outcome != ACQUIRE_FREE)
			return refuse_all(results, many->count, i, outcome);
	}
	for (i = 0; i < many->count; i++)
	{
		if (!lock_takeover(&results[i].name, left_ms))
			return refuse_all(results, many->count, i, ACQUIRE_BUSY);
	}
	for (i = 0; i < many->count; i++)
	{
		many->each.name = results[i].name;
		grant(&many->each, &results[i].row);
		results[i].outcome = ACQUIRE_GRANTED;
	}
	return true;
}

/* The first attempt, as seen by each of the resources. */
static void
count_attempts(const ManyRequest *many)
{
	int			i;

	for (i = 0; i < many->count; i++)
		fence_stats_attempt(&many->results[i].name,
							many->results[i].outcome == ACQUIRE_HELD ||
							many->results[i].outcome == ACQUIRE_BUSY);
}

/* The one that has kept us from having them all. */
static const FenceName *
refused_resource(const ManyRequest *many)
{
	int			i = 0;

	while (many->results[i].outcome == ACQUIRE_NOT_ALL)
		i++;
	return &many->results[i].name;
}

/*
 * What the attempt before has read is forgotten: a wait can take thousands of
 * them.
 */
static bool
attempt_all(ManyRequest *many, MemoryContext attempt)
{
	MemoryContext oldcxt;
	ErrorData  *error;
	bool		granted;

	MemoryContextReset(attempt);
	oldcxt = MemoryContextSwitchTo(attempt);
	granted = fence_attempt(acquire_all, many, 0, &error);
	MemoryContextSwitchTo(oldcxt);
	return granted;
}

static void
acquire_many(ManyRequest *many)
{
	MemoryContext attempt = AllocSetContextCreate(CurrentMemoryContext,
												  "pg_fence acquire",
												  ALLOCSET_SMALL_SIZES);
	instr_time	start;
	const FenceName *missing = NULL;

	INSTR_TIME_SET_CURRENT(start);
	many->waited_ms = 0;
	while (!attempt_all(many, attempt))
	{
		if (missing == NULL)
			count_attempts(many);
		missing = refused_resource(many);
		many->waited_ms = fence_elapsed_ms(start);
		if (many->waited_ms * 1000.0 >= many->each.wait)
			break;
		wait_in_queue(&many->each, missing, many->waited_ms);
	}
	fence_wait_leave();
	if (missing == NULL)
		count_attempts(many);
}

static void
put_results(FunctionCallInfo fcinfo, const AcquireResult *results, int count)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	int			i;

	InitMaterializedSRF(fcinfo, 0);
	for (i = 0; i < count; i++)
	{
		const AcquireResult *result = &results[i];
		Datum		values[ACQUIRE_COLUMNS + 1];
		bool		nulls[ACQUIRE_COLUMNS + 1];

		values[0] = PointerGetDatum(cstring_to_text_with_len(result->name.data,
															 result->name.len));
		nulls[0] = false;
		acquire_columns(result->outcome, outcome_reason(result->outcome),
						&result->row, values + 1, nulls + 1);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
}

/*
 * fence.acquire_many(resources text[], holder text, ttl interval,
 *					  wait interval)
 *
 * All or nothing; a row for each resource.
 */
Datum
fence_acquire_many(PG_FUNCTION_ARGS)
{
	ManyRequest many = {0};

	fence_prevent_read_only("fence.acquire_many()");
	many.results = sorted_resources(fcinfo, 0, &many.count);
	many.each.holder = fence_arg_text(fcinfo, 1, "holder", FENCE_RESOURCE_MAX,
									  false);
	many.each.ttl = fence_arg_duration(fcinfo, 2, "ttl", FENCE_TTL_MIN, FENCE_TTL_MAX);
	many.each.wait = fence_arg_duration(fcinfo, 3, "wait", 0, WAIT_MAX);
	check_own_transaction("fence.acquire_many()");

	acquire_many(&many);
	put_results(fcinfo, many.results, many.count);
	PG_RETURN_VOID();
}

/*
 * fence.hand_over(resource text, token bigint, new_holder text, ttl interval)
 *
 * The holder of a live lease passes it on, under a new token: nobody else
 * can come in between.  A server that keeps it as well knows no difference.
 * A refusal names the holder of the lease that lives instead, if one does.
 */
Datum
fence_hand_over(PG_FUNCTION_ARGS)
{
	AcquireRequest request = {0};
	AcquireOutcome outcome = ACQUIRE_GRANTED;
	int64		token;
	const char *reason;
	FenceRow	row;

	fence_prevent_read_only("fence.hand_over()");
	request.name = fence_arg_name(fcinfo, 0);
	token = fence_arg_token(fcinfo, 1);
	request.holder = fence_arg_text(fcinfo, 2, "holder", FENCE_RESOURCE_MAX,
									false);
	request.ttl = fence_arg_duration(fcinfo, 3, "ttl", FENCE_TTL_MIN, FENCE_TTL_MAX);
	check_own_transaction("fence.hand_over()");

	reason = fence_lease_open_for(&request.name, token, request.ttl,
								  &request.leased_at, &row);
	request.lease = row.lease;
	request.lease_value = row.lease_value;
	if (reason == NULL && !take_over(&request, TAKEOVER_MS, &row))
		reason = "busy";
	if (reason == NULL)
		fence_wait_wake_at_end(&request.name);
	else
		outcome = row.token != token &&
			fence_lease_live(&row, GetCurrentTimestamp()) ?
			ACQUIRE_HELD : ACQUIRE_BUSY;
	PG_RETURN_DATUM(acquire_result(fcinfo, outcome, reason, &row));
}
