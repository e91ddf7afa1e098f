/*-------------------------------------------------------------------------
 *
 * counters.c
 *	  Sets of counters in shared memory, found by a key.
 *
 * A set has a fixed number of rows.  Whoever counts finds his row without a
 * lock, pins it and adds with atomic instructions.  The set's lock is for what
 * changes which row is whose; that waits for pins, too.  Nothing here allocates
 * or raises an error, so that it can be called while one is under way.
 *
 * What counting costs is mostly memory that the processor has to fetch.  So
 * what is needed to find a row, to pin it, and to add to its first counter, is
 * together in one place, apart from the other counters and the rest of a long
 * key; and there are more buckets than rows, so that rows of others are seldom
 * on the way.  Who knows early that he will count can have it fetched.
 *
 * When no row is free, one that is seldom used gives way: a hand goes round
 * and takes a use from each row that it passes, as for the server's buffers.
 * What the row had counted goes to the rest of its database, a row with the
 * empty key, so that nothing is lost.  Rests stay, unless they are more than
 * half of the rows.  Then one of another database gives way, and that is lost:
 * else databases that are dropped would use up the rows in the end.
 *
 * IDENTIFICATION
 *	  src/counters.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "port/pg_bitutils.h"
#include "storage/lwlock.h"
#include "storage/s_lock.h"
#include "storage/shmem.h"

#include "counters.h"

/* Uses that a row can have saved up against the hand. */
#define MAX_USES	5

#define NO_ROW		PG_UINT32_MAX

/* In Row.users: the row is not to be pinned. */
#define CLOSED		0x80000000

/* So far we go along a chain without the lock. */
#define MAX_STEPS	8

/* So much of a key that Row is two cache lines of most processors. */
#define KEY_HERE	92

static const FenceCounterKey rest = {0, "", 0};

typedef struct Row
{
	pg_atomic_uint32 users;		/* pins, and CLOSED, as free rows are */
	pg_atomic_uint32 uses;		/* saved up */
	pg_atomic_uint32 next;		/* in the chain of its bucket, or of the free */
	Oid			dbid;			/* InvalidOid: free */
	uint64		hash;
	pg_atomic_uint64 first;		/* counter; the others are in the tail */
	int			keylen;			/* 0: the rest of the database */
	char		key[KEY_HERE];	/* as much of it as there is room for */
} Row;

struct FenceCounters
{
	LWLock		lock;
	uint32		max;			/* rows */
	uint32		hand;
	uint32		free;			/* the first of the free rows */
	uint32		rests;			/* rows that are the rest of a database */
	int			keysize;		/* of the longest key */
	int			ncounters;
	uint32		nbuckets;		/* a power of two */
	Size		rows;			/* where they begin */
	Size		tails;			/* where the rest of each row begins */
	Size		tail_size;		/* of that: counters, then of its key */
	pg_atomic_uint32 buckets[FLEXIBLE_ARRAY_MEMBER];
};

static Size
buckets_size(uint32 nbuckets)
{
	return CACHELINEALIGN(add_size(offsetof(FenceCounters, buckets),
								   mul_size(nbuckets,
											sizeof(pg_atomic_uint32))));
}

static Size
tail_size(int keysize, int ncounters)
{
	return TYPEALIGN(sizeof(pg_atomic_uint64),
					 (ncounters - 1) * sizeof(pg_atomic_uint64) +
					 Max(keysize - KEY_HERE, 0));
}

static Row *
row_at(FenceCounters *set, uint32 i)
{
	return (Row *) ((char *) set + set->rows) + i;
}

static pg_atomic_uint64 *
tail_of(FenceCounters *set, const Row *row)
{
	uint32		i = row - row_at(set, 0);

	return (pg_atomic_uint64 *) ((char *) set + set->tails +
								 i * set->tail_size);
}

static pg_atomic_uint64 *
counter_of(FenceCounters *set, Row *row, int i)
{
	return i == 0 ? &row->first : tail_of(set, row) + i - 1;
}

/* Of a key that is longer than KEY_HERE, what is not in Row. */
static char *
key_tail(FenceCounters *set, const Row *row)
{
	return (char *) (tail_of(set, row) + set->ncounters - 1);
}

static uint32
buckets_for(int max)
{
	return pg_nextpower2_32(max) * 2;
}

Size
fence_counters_size(int max, int keysize, int ncounters)
{
	return add_size(buckets_size(buckets_for(max)),
					mul_size(max, sizeof(Row) + tail_size(keysize, ncounters)));
}

static void
init_row(FenceCounters *set, Row *row)
{
	int			i;

	pg_atomic_init_u32(&row->users, CLOSED);
	pg_atomic_init_u32(&row->uses, 0);
	pg_atomic_init_u32(&row->next, NO_ROW);
	row->dbid = InvalidOid;
	for (i = 0; i < set->ncounters; i++)
		pg_atomic_init_u64(counter_of(set, row, i), 0);
}

static void
push_free(FenceCounters *set, uint32 i)
{
	pg_atomic_write_u32(&row_at(set, i)->next, set->free);
	set->free = i;
}

static uint32
pop_free(FenceCounters *set)
{
	uint32		i = set->free;

	if (i != NO_ROW)
		set->free = pg_atomic_read_u32(&row_at(set, i)->next);
	return i;
}

void
fence_counters_init(FenceCounters *set, int max, int keysize, int ncounters,
					int tranche)
{
	uint32		i;

	LWLockInitialize(&set->lock, tranche);
	set->max = max;
	set->hand = 0;
	set->rests = 0;
	set->keysize = keysize;
	set->ncounters = ncounters;
	set->nbuckets = buckets_for(max);
	set->rows = buckets_size(set->nbuckets);
	set->tails = set->rows + max * sizeof(Row);
	set->tail_size = tail_size(keysize, ncounters);
	for (i = 0; i < set->nbuckets; i++)
		pg_atomic_init_u32(&set->buckets[i], NO_ROW);
	set->free = NO_ROW;
	for (i = set->max; i-- > 0;)
	{
		init_row(set, row_at(set, i));
		push_free(set, i);
	}
}

static pg_atomic_uint32 *
bucket_of(FenceCounters *set, Oid dbid, uint64 hash)
{
	return &set->buckets[(hash ^ dbid) & (set->nbuckets - 1)];
}

static void
set_key(FenceCounters *set, Row *row, const char *key, int len)
{
	row->keylen = len;
	memcpy(row->key, key, Min(len, KEY_HERE));
	if (len > KEY_HERE)
		memcpy(key_tail(set, row), key + KEY_HERE, len - KEY_HERE);
}

static void
get_key(FenceCounters *set, const Row *row, char *key, int *len)
{
	*len = row->keylen;
	memcpy(key, row->key, Min(*len, KEY_HERE));
	if (*len > KEY_HERE)
		memcpy(key + KEY_HERE, key_tail(set, row), *len - KEY_HERE);
}

static bool
has_key(FenceCounters *set, const Row *row, const char *key, int len)
{
	return row->keylen == len &&
		memcmp(row->key, key, Min(len, KEY_HERE)) == 0 &&
		(len <= KEY_HERE ||
		 memcmp(key_tail(set, row), key + KEY_HERE, len - KEY_HERE) == 0);
}

static bool
is_row_of(FenceCounters *set, const Row *row, Oid dbid,
		  const FenceCounterKey *key)
{
	return row->hash == key->hash && row->dbid == dbid &&
		has_key(set, row, key->data, key->len);
}

static bool
pin_row(Row *row)
{
	return pg_atomic_fetch_add_u32(&row->users, 1) < CLOSED;
}

static void
unpin_row(Row *row)
{
	pg_atomic_fetch_sub_u32(&row->users, 1);
}

/*
 * Keeps others from pinning the row, and waits for those who have: they need
 * a few instructions.  As with a spinlock, the server restarts if one of them
 * does not go on for minutes.
 */
static void
close_row(Row *row)
{
	SpinDelayStatus delay;

	init_local_spin_delay(&delay);
	pg_atomic_fetch_or_u32(&row->users, CLOSED);
	while (pg_atomic_read_u32(&row->users) != CLOSED)
		perform_spin_delay(&delay);
	finish_spin_delay(&delay);
	pg_memory_barrier();
}

static void
open_row(Row *row)
{
	pg_atomic_fetch_and_u32(&row->users, ~CLOSED);
}

/*
 * The row of this key, pinned; NULL if it has none, or if it is not found
 * because others change the chain: we may end up in another one.
 */
static Row *
find_pinned(FenceCounters *set, Oid dbid, const FenceCounterKey *key)
{
	uint32		i = pg_atomic_read_u32(bucket_of(set, dbid, key->hash));
	int			steps;

	for (steps = 0; i != NO_ROW && steps < MAX_STEPS; steps++)
	{
		Row		   *row = row_at(set, i);

		/* a look first, so that rows of others are not written to */
		if (row->hash == key->hash && row->dbid == dbid)
		{
			if (pin_row(row) && is_row_of(set, row, dbid, key))
				return row;
			unpin_row(row);
		}
		i = pg_atomic_read_u32(&row->next);
	}
	return NULL;
}

/*
 * The row of this key, for those who have the lock.
 */
static Row *
find_row(FenceCounters *set, Oid dbid, const FenceCounterKey *key)
{
	uint32		i = pg_atomic_read_u32(bucket_of(set, dbid, key->hash));

	while (i != NO_ROW)
	{
		Row		   *row = row_at(set, i);

		if (is_row_of(set, row, dbid, key))
			return row;
		i = pg_atomic_read_u32(&row->next);
	}
	return NULL;
}

/*
 * Gives a row that is free to a key, and opens it.
 */
static void
link_row(FenceCounters *set, uint32 i, Oid dbid, const FenceCounterKey *key)
{
	Row		   *row = row_at(set, i);
	pg_atomic_uint32 *bucket = bucket_of(set, dbid, key->hash);

	row->dbid = dbid;
	row->hash = key->hash;
	set_key(set, row, key->data, key->len);
	set->rests += (key->len == 0);
	pg_atomic_write_u32(&row->next, pg_atomic_read_u32(bucket));
	open_row(row);
	pg_atomic_write_u32(bucket, i);
}

/*
 * Closes a row and takes it from its key.
 */
static void
unlink_row(FenceCounters *set, uint32 i)
{
	Row		   *row = row_at(set, i);
	pg_atomic_uint32 *link = bucket_of(set, row->dbid, row->hash);

	close_row(row);
	while (pg_atomic_read_u32(link) != i)
		link = &row_at(set, pg_atomic_read_u32(link))->next;
	pg_atomic_write_u32(link, pg_atomic_read_u32(&row->next));
	set->rests -= (row->keylen == 0);
	row->dbid = InvalidOid;
}

static void
clear_counters(FenceCounters *set, Row *row)
{
	int			i;

	for (i = 0; i < set->ncounters; i++)
		pg_atomic_write_u64(counter_of(set, row, i), 0);
}

static void
move_counters(FenceCounters *set, Row *from, Row *to)
{
	int			i;

	for (i = 0; i < set->ncounters; i++)
	{
		uint64		amount = pg_atomic_read_u64(counter_of(set, from, i));

		pg_atomic_fetch_add_u64(counter_of(set, to, i), amount);
	}
	clear_counters(set, from);
}

/*
 * Two that use the row at the same time may count as one.
 */
static void
count_use(Row *row)
{
	uint32		uses = pg_atomic_read_u32(&row->uses);

	if (uses < MAX_USES)
		pg_atomic_write_u32(&row->uses, uses + 1);
}

/*
 * Goes round until it finds a row that is not used any more, or has seen all
 * of them often enough: others may use them faster than the hand takes that
 * away.  Passes by rests; where there are too many of them, all but those of
 * other databases.  NO_ROW if the only row is our rest.
 */
static uint32
next_victim(FenceCounters *set)
{
	bool		spare_rests = (set->rests <= set->max / 2);
	uint32		steps = (MAX_USES + 1) * set->max;
	uint32		victim = NO_ROW;

	while (steps-- > 0)
	{
		uint32		i = set->hand;
		Row		   *row = row_at(set, i);
		uint32		uses = pg_atomic_read_u32(&row->uses);

		set->hand = (set->hand + 1) % set->max;
		if ((row->keylen == 0) == spare_rests ||
			(!spare_rests && row->dbid == MyDatabaseId))
			continue;
		victim = i;
		if (uses == 0)
			break;
		pg_atomic_write_u32(&row->uses, uses - 1);
	}
	return victim;
}

/*
 * Frees a row for another key.  The first one of a database that has to go
 * becomes its rest, and another one has to.  NO_ROW if there is none.
 */
static uint32
evict_row(FenceCounters *set)
{
	uint32		i;

	while ((i = next_victim(set)) != NO_ROW)
	{
		Row		   *row = row_at(set, i);
		Oid			dbid = row->dbid;
		bool		is_rest = (row->keylen == 0);
		Row		   *to;

		unlink_row(set, i);
		if (is_rest)
		{
			clear_counters(set, row);
			break;
		}
		to = find_row(set, dbid, &rest);
		if (to != NULL)
		{
			move_counters(set, row, to);
			count_use(to);
			break;
		}
		link_row(set, i, dbid, &rest);
	}
	return i;
}

/*
 * A new row for the key; if there is none to be had, the rest.
 */
static Row *
make_row(FenceCounters *set, const FenceCounterKey *key)
{
	uint32		i = pop_free(set);

	if (i == NO_ROW)
		i = evict_row(set);
	if (i == NO_ROW)
		return find_row(set, MyDatabaseId, &rest);
	pg_atomic_write_u32(&row_at(set, i)->uses, 0);
	link_row(set, i, MyDatabaseId, key);
	return row_at(set, i);
}

static void
count_in(FenceCounters *set, Row *row, const FenceIncrement *increments,
		 int count)
{
	int			i;

	count_use(row);
	for (i = 0; i < count; i++)
		pg_atomic_fetch_add_u64(counter_of(set, row, increments[i].counter),
								increments[i].amount);
}

/*
 * Has the processor fetch what fence_counters_add() will need.  Of no use right
 * before that, but there is time to read a page of a table in between.
 */
void
fence_counters_expect(FenceCounters *set, const FenceCounterKey *key)
{
#ifdef __GNUC__
	uint32		i = pg_atomic_read_u32(bucket_of(set, MyDatabaseId,
												 key->hash));

	if (i != NO_ROW)
		__builtin_prefetch(row_at(set, i), 1);
#endif
}

/*
 * Adds to counters of one row, made if it is not there.
 */
void
fence_counters_add(FenceCounters *set, const FenceCounterKey *key,
				   const FenceIncrement *increments, int count)
{
	Row		   *row = find_pinned(set, MyDatabaseId, key);

	Assert(key->len > 0 && key->len <= set->keysize);
	if (row != NULL)
	{
		count_in(set, row, increments, count);
		unpin_row(row);
		return;
	}
	LWLockAcquire(&set->lock, LW_EXCLUSIVE);
	row = find_row(set, MyDatabaseId, key);
	if (row == NULL)
		row = make_row(set, key);
	count_in(set, row, increments, count);
	LWLockRelease(&set->lock);
}

int
fence_counters_max(const FenceCounters *set)
{
	return set->max;
}

/*
 * For whoever reads all rows: meanwhile none gives way, so that what it has
 * counted is neither missed nor seen twice.  Counting goes on.
 */
void
fence_counters_lock(FenceCounters *set)
{
	LWLockAcquire(&set->lock, LW_SHARED);
}

void
fence_counters_unlock(FenceCounters *set)
{
	LWLockRelease(&set->lock);
}

/*
 * Copies row i; false if it is free or belongs to another database.  The
 * caller has locked the set, and has room for the longest key and for all
 * counters.
 */
bool
fence_counters_get(FenceCounters *set, int i, char *key, int *len,
				   uint64 *values)
{
	Row		   *row = row_at(set, i);
	int			j;

	if (row->dbid != MyDatabaseId)
		return false;
	get_key(set, row, key, len);
	for (j = 0; j < set->ncounters; j++)
		values[j] = pg_atomic_read_u64(counter_of(set, row, j));
	return true;
}

/*
 * Forgets all rows of this database.
 */
void
fence_counters_reset(FenceCounters *set)
{
	uint32		i;

	LWLockAcquire(&set->lock, LW_EXCLUSIVE);
	for (i = 0; i < set->max; i++)
	{
		Row		   *row = row_at(set, i);

		if (row->dbid != MyDatabaseId)
			continue;
		unlink_row(set, i);
		clear_counters(set, row);
		push_free(set, i);
	}
	LWLockRelease(&set->lock);
}
