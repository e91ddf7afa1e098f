/*-------------------------------------------------------------------------
 *
 * lease.c
 *	  The lease of a token: extend, release, break_lease.
 *
 * All instants are clock_timestamp() read after the locks: now() is the
 * start of the transaction, and a wait would eat up the lease.
 *
 * IDENTIFICATION
 *	  src/lease.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

#include "args.h"
#include "compat.h"
#include "lease.h"
#include "lease_end.h"
#include "redis_lease.h"
#include "wait_queue.h"

PG_FUNCTION_INFO_V1(fence_extend);
PG_FUNCTION_INFO_V1(fence_release);
PG_FUNCTION_INFO_V1(fence_break_lease);
PG_FUNCTION_INFO_V1(fence_home_sql);

/* How long a lock is tried for that its holder keeps only for a moment. */
#define PATIENCE_MS		10

/*
 * Sleeps, but not through a cancel, a termination or a call for our turn.
 */
void
fence_lease_nap(long ms)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = fence_new_wait_event("FenceAcquire");
	(void) WaitLatch(MyLatch,
					 WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 ms, wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Takes the lock, or false if its holder keeps it for longer than a moment.
 * It is not queued for.
 */
bool
fence_lease_lock(const FenceName *name, LOCKMODE mode)
{
	instr_time	start;

	INSTR_TIME_SET_CURRENT(start);
	for (;;)
	{
		if (fence_lock_nowait(name, mode))
			return true;
		if (fence_elapsed_ms(start) >= PATIENCE_MS)
			return false;
		fence_lease_nap(1);
	}
}

/*
 * The gate for extend() and release().  A transaction that has written may
 * hold what the gate's holder waits for, so it must not wait here.
 */
static bool
lock_gate_politely(const FenceName *name)
{
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return fence_lease_lock(name, FENCE_LOCK_GATE);
	fence_lock(name, FENCE_LOCK_GATE);
	return true;
}

/*
 * The number above all that were issued or accepted.
 */
int64
fence_lease_next_token(const FenceName *name, const FenceRow *row)
{
	int64		last = Max(row->token, row->mark);

	if (last == PG_INT64_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_SEQUENCE_GENERATOR_LIMIT_EXCEEDED),
				 errmsg("fencing tokens of resource \"%.*s\" are exhausted",
						name->len, name->data),
				 errdetail("The high-water mark is %lld.", (long long) last),
				 errhint("Use another resource name.")));
	return last + 1;
}

/*
 * What is left until then, an interval of no less than nothing.
 */
Datum
fence_lease_remaining(TimestampTz expires_at)
{
	return fence_interval(Max(0, expires_at - GetCurrentTimestamp()));
}

/*
 * Why the lease of this token can no longer be changed; NULL if it can.
 */
static const char *
lost_reason(const FenceRow *row, int64 token, TimestampTz now)
{
	if (row->holder == NULL || token > row->token)
		return "unknown";
	if (token < row->token || token < row->mark)
		return "superseded";
	if (row->released)
		return "released";
	if (!fence_lease_live(row, now))
		return "expired";
	return NULL;
}

/*
 * Takes the gate and reads the row for a change of the lease of this token.
 * Returns the reason why it cannot be changed, without the gate; or NULL,
 * with the gate.  Looks first without, so that a lost lease waits for
 * nobody.
 */
static const char *
open_lease(const FenceName *name, int64 token, FenceRow *row)
{
	const char *reason;

	fence_row_read(name, row);
	reason = lost_reason(row, token, GetCurrentTimestamp());
	if (reason != NULL)
		return reason;
	if (!lock_gate_politely(name))
		return "busy";
	fence_row_read(name, row);
	reason = lost_reason(row, token, GetCurrentTimestamp());
	if (reason != NULL)
		fence_unlock(name, FENCE_LOCK_GATE);
	return reason;
}

/*
 * The same for a lease that is to live on for ttl from *start: it has to where
 * a server keeps it, too.
 */
const char *
fence_lease_open_for(const FenceName *name, int64 token, int64 ttl,
					 TimestampTz *start, FenceRow *row)
{
	const char *reason = open_lease(name, token, row);

	*start = GetCurrentTimestamp();
	if (reason == NULL && row->lease != NULL &&
		!fence_redis_prolong(row->lease, name, row->lease_value, ttl))
	{
		fence_unlock(name, FENCE_LOCK_GATE);
		reason = "expired";
	}
	return reason;
}

/*
 * fence.extend(resource text, token bigint, ttl interval)
 *
 * Never shortens a lease, never revives one.
 */
Datum
fence_extend(PG_FUNCTION_ARGS)
{
	FenceName	name;
	int64		token;
	int64		ttl;
	TimestampTz start;
	const char *reason;
	FenceRow	row;
	Datum		values[4] = {0};
	bool		nulls[4] = {false, true, true, true};

	fence_prevent_read_only("fence.extend()");
	name = fence_arg_name(fcinfo, 0);
	token = fence_arg_token(fcinfo, 1);
	ttl = fence_arg_duration(fcinfo, 2, "ttl", FENCE_TTL_MIN, FENCE_TTL_MAX);

	reason = fence_lease_open_for(&name, token, ttl, &start, &row);
	values[0] = BoolGetDatum(reason == NULL);
	if (reason == NULL)
	{
		row.expires_at = Max(row.expires_at, start + ttl);
		row.renewals++;
		fence_row_write(&name, &row);
		values[1] = TimestampTzGetDatum(row.expires_at);
		values[2] = fence_lease_remaining(row.expires_at);
		nulls[1] = nulls[2] = false;
	}
	else
	{
		values[3] = CStringGetTextDatum(reason);
		nulls[3] = false;
	}
	PG_RETURN_DATUM(fence_result_row(fcinfo, values, nulls));
}

/*
 * fence.release(resource text, token bigint)
 *
 * False if the lease of this token is not held any more.
 */
Datum
fence_release(PG_FUNCTION_ARGS)
{
	FenceName	name;
	int64		token;
	const char *reason;
	FenceRow	row;

	fence_prevent_read_only("fence.release()");
	name = fence_arg_name(fcinfo, 0);
	token = fence_arg_token(fcinfo, 1);

	reason = open_lease(&name, token, &row);
	if (reason != NULL && strcmp(reason, "busy") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("could not release resource \"%.*s\"",
						name.len, name.data),
				 errdetail("Another transaction is changing its lease, and this transaction has written and must not wait for it."),
				 errhint("Release in a transaction of its own, or let the lease expire.")));
	if (reason != NULL)
		PG_RETURN_BOOL(false);

	row.released = true;
	row.released_at = GetCurrentTimestamp();
	fence_lease_ended(&name, &row, FENCE_LEASE_RELEASED, row.released_at);
	fence_row_write(&name, &row);
	if (row.lease != NULL)
		fence_redis_give_back(row.lease, &name, row.lease_value);
	fence_wait_wake_at_end(&name);
	PG_RETURN_BOOL(true);
}

/*
 * fence.break_lease(resource text) returns boolean
 *
 * Ends the lease, live or run out, and raises the mark, because ending a
 * lease alone fences nobody off.  False if there is none to break.
 */
Datum
fence_break_lease(PG_FUNCTION_ARGS)
{
	FenceName	name;
	FenceRow	row;

	fence_prevent_read_only("fence.break_lease()");
	name = fence_arg_name(fcinfo, 0);

	fence_lock(&name, FENCE_LOCK_GATE);
	fence_row_read(&name, &row);
	if (row.holder == NULL || row.released)
	{
		fence_unlock(&name, FENCE_LOCK_GATE);
		PG_RETURN_BOOL(false);
	}

	fence_lock(&name, FENCE_LOCK_TAKEOVER);
	row.mark = fence_lease_next_token(&name, &row);
	row.mark_holder = NULL;
	row.released = true;
	row.marked_at = row.released_at = GetCurrentTimestamp();
	fence_lease_ended(&name, &row, FENCE_LEASE_BROKEN, row.released_at);
	fence_row_write(&name, &row);
	if (row.lease != NULL)
		fence_redis_give_back(row.lease, &name, row.lease_value);
	fence_wait_wake_at_end(&name);

	ereport(LOG,
			(errmsg("lease of holder \"%s\" on resource \"%.*s\" broken by \"%s\"",
					row.holder, name.len, name.data,
					GetUserNameFromId(GetUserId(), false))));
	PG_RETURN_BOOL(true);
}

/*
 * fence.home() returns bigint: what leases granted in this database carry.
 */
Datum
fence_home_sql(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(fence_home());
}
