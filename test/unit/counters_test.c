/*-------------------------------------------------------------------------
 *
 * counters_test.c
 *	  Tests of the counters in shared memory, without a server.
 *
 * Several processes count in one set that has too few rows, as fast as they
 * can: so that rows are taken from keys while others find and count in them.
 * Each key has a counter of its own, and the value of that key goes there: a
 * row that has anything else got it from somebody who counted in the wrong
 * row.
 *
 * Copyright (c) 2026, the pg_fence maintainers
 *
 * test/unit/counters_test.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

/* those of the C library, for check.h */
#undef printf
#undef fprintf

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/s_lock.h"
#include "storage/shmem.h"

#include "check.h"
#include "counters.h"

#define KEYS		20
#define PROCESSES	4
#define DATABASES	2
#define DATABASE(i)	(1 + 1024 * (i))	/* the same bucket in both */
#define ADDS		1000000
#define LOOKS		20000
#define AMOUNT		3
#define TOO_LONG	120			/* seconds */

static FenceCounters *set;
static int	locked = 0;			/* how often this process took the lock */

/* ----------------------------------------------------------------
 * What the server would provide
 * ----------------------------------------------------------------
 */
Oid			MyDatabaseId;

Size
add_size(Size a, Size b)
{
	return a + b;
}

Size
mul_size(Size a, Size b)
{
	return a * b;
}

void
LWLockInitialize(LWLock *lock, int tranche)
{
	pg_atomic_init_u32(&lock->state, 0);
}

/* Both modes are exclusive here. */
bool
LWLockAcquire(LWLock *lock, LWLockMode mode)
{
	while (pg_atomic_exchange_u32(&lock->state, 1) != 0)
		sched_yield();
	locked++;
	return true;
}

void
LWLockRelease(LWLock *lock)
{
	(void) pg_atomic_exchange_u32(&lock->state, 0);
}

void
perform_spin_delay(SpinDelayStatus *status)
{
	sched_yield();
}

void
finish_spin_delay(SpinDelayStatus *status)
{
}

/* ----------------------------------------------------------------
 * Sets
 * ----------------------------------------------------------------
 */
static void
make_set_for(int rows, int keysize, int ncounters)
{
	Size		size = fence_counters_size(rows, keysize, ncounters);

	set = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			   -1, 0);
	MUST(set != MAP_FAILED);
	fence_counters_init(set, rows, keysize, ncounters, 0);
}

static void
make_set(int rows)
{
	make_set_for(rows, sizeof(int), KEYS);
}

/* Keys share hashes, so that chains are long and hashes are not enough. */
static void
count(int key, uint64 amount)
{
	FenceCounterKey counter_key = {key % 3, &key, sizeof(int)};
	FenceIncrement increment = {key, amount};

	fence_counters_add(set, &counter_key, &increment, 1);
}

typedef struct Found
{
	int			rows;
	int			rests;
	int			wrong;			/* counters that are not the row's */
	uint64		sums[KEYS];
} Found;

static Found
look(void)
{
	Found		found = {0};
	int			i;
	int			j;

	fence_counters_lock(set);
	for (i = 0; i < fence_counters_max(set); i++)
	{
		int			key = KEYS;
		int			len;
		uint64		values[KEYS];

		if (!fence_counters_get(set, i, (char *) &key, &len, values))
			continue;
		found.rows++;
		found.rests += (len == 0);
		for (j = 0; j < KEYS; j++)
		{
			found.sums[j] += values[j];
			found.wrong += (len > 0 && j != key && values[j] != 0);
		}
	}
	fence_counters_unlock(set);
	return found;
}

static uint64
sum_of(const Found *found)
{
	uint64		sum = 0;
	int			i;

	for (i = 0; i < KEYS; i++)
		sum += found->sums[i];
	return sum;
}

/* ----------------------------------------------------------------
 * Tests
 * ----------------------------------------------------------------
 */
static void
test_rows(void)
{
	Found		found;
	int			before;

	MyDatabaseId = DATABASE(0);
	make_set(3);
	CHECK(look().rows == 0);
	count(1, 5);
	count(4, 6);				/* the same hash */
	before = locked;
	count(1, 7);
	count(4, 1);
	CHECK(locked == before);	/* they are there */
	found = look();
	CHECK(found.rows == 2 && found.rests == 0 && found.wrong == 0);
	CHECK(found.sums[1] == 12 && found.sums[4] == 7);
}

static void
test_databases(void)
{
	Found		found;

	MyDatabaseId = DATABASE(0);
	make_set(3);
	count(1, 5);
	count(2, 5);
	MyDatabaseId = DATABASE(1);
	CHECK(look().rows == 0);
	count(1, 1);
	CHECK(look().rows == 1);
	MyDatabaseId = DATABASE(0);
	found = look();
	CHECK(found.rows == 2 && found.sums[1] == 5);

	/* what is free is used before anything gives way */
	fence_counters_reset(set);
	CHECK(look().rows == 0);
	count(7, 1);
	count(8, 1);
	found = look();
	CHECK(found.rows == 2 && sum_of(&found) == 2);
	MyDatabaseId = DATABASE(1);
	found = look();
	CHECK(found.rows == 1 && found.rests == 0 && found.sums[1] == 1);
}

/* One row only: all are counted in it, until another database needs it. */
static void
test_rest(void)
{
	Found		found;

	MyDatabaseId = DATABASE(0);
	make_set(1);
	count(1, 2);
	found = look();
	CHECK(found.rows == 1 && found.rests == 0 && found.sums[1] == 2);
	count(2, 3);
	found = look();
	CHECK(found.rows == 1 && found.rests == 1 && sum_of(&found) == 5);
	MyDatabaseId = DATABASE(1);
	count(3, 1);
	found = look();
	CHECK(found.rows == 1 && found.rests == 0 && sum_of(&found) == 1);
	MyDatabaseId = DATABASE(0);
	CHECK(look().rows == 0);
}

/*
 * Databases that come and go, as many as there are rows and more: their rests
 * do not take the rows from those who still count, and theirs stay.
 */
static void
test_dropped(void)
{
	enum {ROWS = 10, OLD = 3 * ROWS};
	Found		found;
	int			before;
	int			i;

	make_set(ROWS);
	for (i = 1; i <= OLD; i++)
	{
		MyDatabaseId = DATABASE(0);
		count(i % KEYS, 1);
		MyDatabaseId = DATABASE(i);
		count(1, 1);
	}
	MyDatabaseId = DATABASE(0);
	found = look();
	CHECK(sum_of(&found) == OLD);

	MyDatabaseId = DATABASE(OLD + 1);
	count(1, 1);
	count(2, 1);
	count(3, 1);
	before = locked;
	count(1, 1);
	count(2, 1);
	count(3, 1);
	CHECK(locked == before);
	found = look();
	CHECK(found.rows == 3 && found.rests == 0 && sum_of(&found) == 6);
}

/*
 * Keys of all lengths, those of a length the same but for the last byte, all
 * with one hash.
 */
static void
test_long_keys(void)
{
	enum {LONGEST = 300};
	char		key[LONGEST];
	char		found[LONGEST];
	FenceCounterKey counter_key = {1, key, 0};
	int			rows = 0;
	int			good = 0;
	int			i;

	MyDatabaseId = DATABASE(0);
	make_set_for(2 * LONGEST, LONGEST, 2);
	memset(key, 'x', LONGEST);
	for (i = 0; i < 4 * LONGEST; i++)
	{
		FenceIncrement increments[] = {{0, 1}, {1, i % 2}};

		counter_key.len = 1 + i / 2 % LONGEST;
		key[counter_key.len - 1] = 'a' + i % 2;
		fence_counters_add(set, &counter_key, increments, 2);
		key[counter_key.len - 1] = 'x';
	}
	fence_counters_lock(set);
	for (i = 0; i < fence_counters_max(set); i++)
	{
		int			len;
		uint64		values[2];

		if (!fence_counters_get(set, i, found, &len, values))
			continue;
		rows++;
		good += memcmp(found, key, len - 1) == 0 && values[0] == 2 &&
			values[1] == (found[len - 1] == 'b' ? 2 : 0);
	}
	fence_counters_unlock(set);
	CHECK(rows == 2 * LONGEST);
	CHECK(good == rows);
}

/*
 * Runs the function once in each process.  The database is one of DATABASES.
 */
static void
run_processes(void (*function) (int process))
{
	int			i;
	int			status;

	for (i = 0; i < PROCESSES; i++)
	{
		pid_t		pid = fork();

		MUST(pid >= 0);
		if (pid > 0)
			continue;
		alarm(TOO_LONG);
		MyDatabaseId = DATABASE(i % DATABASES);
		function(i);
		_exit(0);
	}
	for (i = 0; i < PROCESSES; i++)
	{
		MUST(wait(&status) > 0);
		CHECK(status == 0);
	}
}

static void
count_all(int process)
{
	int			i;

	for (i = 0; i < ADDS; i++)
		count((i * 7 + process * 5) % KEYS, AMOUNT);
}

/* The same keys in the same order in all of them, and far more than rows. */
static void
test_eviction(int rows)
{
	Found		found;
	int			i;
	int			j;

	make_set(rows);
	run_processes(count_all);
	for (i = 0; i < DATABASES; i++)
	{
		MyDatabaseId = DATABASE(i);
		found = look();
		CHECK(found.wrong == 0);
		CHECK(found.rests == (rows < KEYS * DATABASES));
		for (j = 0; j < KEYS; j++)
			CHECK(found.sums[j] == (uint64) AMOUNT * ADDS / KEYS *
				  PROCESSES / DATABASES);
	}
}

/* One of each database looks on while the other one counts. */
static void
count_or_look(int process)
{
	uint64		before = 0;
	int			i;

	if (process >= DATABASES)
	{
		count_all(process);
		return;
	}
	for (i = 0; i < LOOKS; i++)
	{
		Found		found = look();

		MUST(sum_of(&found) >= before);
		before = sum_of(&found);
	}
}

/* What goes from one row to another is neither missed nor seen twice. */
static void
test_look(void)
{
	make_set(8);
	run_processes(count_or_look);
}

static void
count_and_reset(int process)
{
	int			i;

	for (i = 0; i < ADDS; i++)
	{
		count((i * 7 + process) % KEYS, AMOUNT);
		if (i % 50 == 0)
			fence_counters_reset(set);
		if (i % 1000 == 0)
			MUST(look().wrong == 0);
	}
}

/* What is counted in a row that is being given up goes nowhere else. */
static void
test_reset(void)
{
	int			i;

	make_set(KEYS * DATABASES);
	run_processes(count_and_reset);
	for (i = 0; i < DATABASES; i++)
	{
		MyDatabaseId = DATABASE(i);
		CHECK(look().rests == 0);
		CHECK(look().wrong == 0);
		fence_counters_reset(set);
		CHECK(look().rows == 0);
	}
}

int
main(void)
{
	alarm(TOO_LONG);
	test_rows();
	test_databases();
	test_rest();
	test_dropped();
	test_long_keys();
	test_eviction(KEYS * DATABASES);
	test_eviction(8);
	test_eviction(4);
	test_look();
	test_reset();
	return check_summary();
}
