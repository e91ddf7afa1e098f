/*-------------------------------------------------------------------------
 *
 * wait_queue.c
 *	  Who waits for a lease, in the order of arrival.
 *
 * Without shared memory everybody who waits looks again now and then, and
 * whoever happens to look first gets the lease.  With it, those who wait
 * stand in a queue; the one who came first looks often, and is woken as soon
 * as the lease is given back, and nobody else takes it before him.
 *
 * The queue only says who may try.  What decides is the gate of the resource
 * and its row, as ever; and so that a waiter that is stuck does not hold up
 * the others, his turn passes when he does not use it at once.
 *
 * IDENTIFICATION
 *	  src/wait_queue.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "portability/instr_time.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "compat.h"
#include "stats.h"
#include "wait_queue.h"

/* For how long whoever was called may keep the others from trying. */
#define TURN_MAX	(INT64CONST(100) * 1000)	/* 100 ms, in microseconds */

/* One for each backend; it waits for one resource at a time. */
typedef struct Waiter
{
	Oid			dbid;			/* InvalidOid: does not wait */
	uint64		key;			/* of the resource */
	uint64		ticket;			/* the lower, the earlier */
	int64		called;			/* for his turn, 0: not since he last looked */
} Waiter;

typedef struct WaitQueue
{
	LWLock		lock;
	pg_atomic_uint32 waiting;	/* backends, so that most need no lock */
	uint64		next_ticket;
	int			max;
	Waiter		waiters[FLEXIBLE_ARRAY_MEMBER];
} WaitQueue;

/* Transaction nesting level at which this backend joined, 0: it does not wait. */
static int	joined_level = 0;

/* Since when, and for which resource now; kept here, as an error can end it. */
static int64 joined_at;
static FenceName joined_name;
static char joined_name_data[FENCE_RESOURCE_MAX];

/* Resources to be woken at the end of the transaction, in its memory. */
typedef struct WakeUp
{
	uint64		key;
	struct WakeUp *next;
} WakeUp;

static WakeUp *wake_ups = NULL;

Size
fence_wait_queue_size(const FenceLimits *limits)
{
	return add_size(offsetof(WaitQueue, waiters),
					mul_size(MaxBackends, sizeof(Waiter)));
}

void
fence_wait_queue_init(void *part, const FenceLimits *limits, int tranche)
{
	WaitQueue  *queue = part;

	memset(queue, 0, fence_wait_queue_size(limits));
	LWLockInitialize(&queue->lock, tranche);
	pg_atomic_init_u32(&queue->waiting, 0);
	queue->next_ticket = 1;
	queue->max = MaxBackends;
}

/* Microseconds of a clock that nobody sets, the same in all backends. */
static int64
now_usecs(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

static WaitQueue *
occupied_queue(void)
{
	WaitQueue  *queue = fence_shared(FENCE_PART_QUEUE);

	return queue != NULL && pg_atomic_read_u32(&queue->waiting) > 0 ?
		queue : NULL;
}

/*
 * The first one who waits for the resource and came before the ticket, but
 * for those who have let their turn pass.  Under the lock.
 */
static Waiter *
first_waiter(WaitQueue *queue, uint64 key, uint64 ticket, int64 now)
{
	Waiter	   *first = NULL;
	int			i;

	for (i = 0; i < queue->max; i++)
	{
		Waiter	   *waiter = &queue->waiters[i];

		if (waiter->dbid == MyDatabaseId && waiter->key == key &&
			waiter->ticket < ticket &&
			(waiter->called == 0 || now - waiter->called <= TURN_MAX))
		{
			first = waiter;
			ticket = waiter->ticket;
		}
	}
	return first;
}

static void
call(WaitQueue *queue, Waiter *waiter, int64 now)
{
	if (waiter->called == 0)
		waiter->called = now;
	SetLatch(&ProcGlobal->allProcs[waiter - queue->waiters].procLatch);
}

/* Calls the first one who waits for the resource, if anybody does. */
static void
wake(uint64 key)
{
	WaitQueue  *queue = occupied_queue();
	int64		now = now_usecs();
	Waiter	   *first;

	if (queue == NULL)
		return;
	LWLockAcquire(&queue->lock, LW_EXCLUSIVE);
	first = first_waiter(queue, key, PG_UINT64_MAX, now);
	if (first != NULL)
		call(queue, first, now);
	LWLockRelease(&queue->lock);
}

/*
 * The resource looks free.  May this backend try to acquire it?  Not while
 * somebody waits who came before; he is called instead.
 */
bool
fence_wait_turn(const FenceName *name)
{
	WaitQueue  *queue;
	int64		now = now_usecs();
	uint64		ticket = PG_UINT64_MAX;
	Waiter	   *first;

	/* A session that has not attached would not see who waits. */
	(void) fence_shared_attach();
	queue = occupied_queue();
	if (queue == NULL)
		return true;
	LWLockAcquire(&queue->lock, LW_EXCLUSIVE);
	if (joined_level > 0)
		ticket = queue->waiters[fence_proc_number()].ticket;
	first = first_waiter(queue, name->key, ticket, now);
	if (first != NULL)
		call(queue, first, now);
	LWLockRelease(&queue->lock);
	return first == NULL;
}

/*
 * Somebody waits for this resource no more: whoever is the first now learns
 * it.  Under the lock.
 */
static void
notify_first(WaitQueue *queue, uint64 key, int64 now)
{
	Waiter	   *first = first_waiter(queue, key, PG_UINT64_MAX, now);

	if (first != NULL)
		SetLatch(&ProcGlobal->allProcs[first - queue->waiters].procLatch);
}

static void
remember_name(const FenceName *name)
{
	Assert(name->len <= FENCE_RESOURCE_MAX);
	memcpy(joined_name_data, name->data, name->len);
	joined_name = *name;
	joined_name.data = joined_name_data;
}

/* The wait for the resource ends, or goes on as one for another. */
static void
count_wait(int64 now)
{
	fence_stats_wait(&joined_name, now - joined_at);
	joined_at = now;
}

/*
 * Waits for this resource from now on.  A place in the queue is kept: who
 * wants several resources changes from one to the other with it.
 *
 * Returns whether he is the first, and thus has to look for himself when the
 * lease runs out.
 */
bool
fence_wait_join(const FenceName *name)
{
	WaitQueue  *queue = NULL;
	Waiter	   *self;
	uint64		before = joined_name.key;
	int64		now = now_usecs();
	bool		moves;
	bool		first;

	if (fence_shared_attach())
		queue = fence_shared(FENCE_PART_QUEUE);
	if (queue == NULL)
		return true;
	moves = joined_level > 0 && before != name->key;
	if (moves)
		count_wait(now);
	remember_name(name);
	self = &queue->waiters[fence_proc_number()];
	LWLockAcquire(&queue->lock, LW_EXCLUSIVE);
	if (joined_level == 0)
	{
		self->dbid = MyDatabaseId;
		self->ticket = queue->next_ticket++;
		pg_atomic_fetch_add_u32(&queue->waiting, 1);
		joined_level = GetCurrentTransactionNestLevel();
		joined_at = now;
	}
	self->key = name->key;
	self->called = 0;
	if (moves)
		notify_first(queue, before, now);
	first = first_waiter(queue, name->key, self->ticket, now) == NULL;
	LWLockRelease(&queue->lock);
	return first;
}

/*
 * Waits no more, with or without success.
 */
void
fence_wait_leave(void)
{
	WaitQueue  *queue = fence_shared(FENCE_PART_QUEUE);
	Waiter	   *self;
	int64		now;

	if (joined_level == 0)
		return;
	joined_level = 0;
	now = now_usecs();
	self = &queue->waiters[fence_proc_number()];
	LWLockAcquire(&queue->lock, LW_EXCLUSIVE);
	self->dbid = InvalidOid;
	pg_atomic_fetch_sub_u32(&queue->waiting, 1);
	notify_first(queue, self->key, now);
	LWLockRelease(&queue->lock);
	count_wait(now);
}

/*
 * This transaction changes the lease.  When it has ended, and only then can
 * others see the change, whoever waits for it is woken.
 */
void
fence_wait_wake_at_end(const FenceName *name)
{
	WakeUp	   *wake_up;

	if (!fence_shared_attach())
		return;
	wake_up = MemoryContextAlloc(TopTransactionContext, sizeof(WakeUp));
	wake_up->key = name->key;
	wake_up->next = wake_ups;
	wake_ups = wake_up;
}

static void
xact_callback(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			fence_wait_leave();
			for (; wake_ups != NULL; wake_ups = wake_ups->next)
				wake(wake_ups->key);
			break;
		case XACT_EVENT_PREPARE:
			wake_ups = NULL;
			break;
		default:
			break;
	}
}

/* An error has ended the wait. */
static void
subxact_callback(SubXactEvent event, SubTransactionId subid,
				 SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB &&
		joined_level >= GetCurrentTransactionNestLevel())
		fence_wait_leave();
}

/*
 * Once per backend.
 */
void
fence_wait_queue_start(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}
