/*-------------------------------------------------------------------------
 *
 * counters.c
 *	  Sets of counters in shared memory, found by a key.
 *
 * A set has a fixed number of rows.  Whoever counts finds his row under the
 * set's lock in shared mode and adds with atomic instructions; only to make a
 * row the lock is taken exclusively.  Nothing here allocates or raises
 * anything, so that it can be called while an error is under way.
 *
 * When all rows are in use, one that is seldom used gives way: a hand goes
 * round and takes a use from each row that it passes, as for the server's
 * buffers.  What the row had counted goes to the rest of its database, a row
 * with the empty key, so that nothing is lost.  Rests stay; only when there
 * is nothing else, the one of another database gives way: else databases that
 * are dropped would use up the rows in the end.
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
#include "storage/shmem.h"

#include "counters.h"

/* Uses that a row can have saved up against the hand. */
#define MAX_USES	5

#define NO_ROW		(-1)

static const FenceCounterKey rest = {0, "", 0};

typedef struct Row
{
	int			next;			/* in the chain of its bucket */
	Oid			dbid;			/* InvalidOid: free */
	uint64		hash;
	int			keylen;			/* 0: the rest of the database */
	pg_atomic_uint32 uses;
	pg_atomic_uint64 counters[FLEXIBLE_ARRAY_MEMBER];	/* then the key */
} Row;

struct FenceCounters
{
	LWLock		lock;
	int			max;			/* rows */
	int			ncounters;
	int			nbuckets;		/* a power of two */
	Size		rows;			/* where they begin */
	Size		row_size;
	int			hand;
	int			buckets[FLEXIBLE_ARRAY_MEMBER]; /* then the rows */
};

static Size
buckets_size(int nbuckets)
{
	return MAXALIGN(add_size(offsetof(FenceCounters, buckets),
							 mul_size(nbuckets, sizeof(int))));
}

static Size
row_size(int keysize, int ncounters)
{
	return MAXALIGN(offsetof(Row, counters) +
					ncounters * sizeof(pg_atomic_uint64) + keysize);
}

static Row *
row_at(FenceCounters *set, int i)
{
	return (Row *) ((char *) set + set->rows + i * set->row_size);
}

static char *
row_key(const FenceCounters *set, Row *row)
{
	return (char *) &row->counters[set->ncounters];
}

Size
fence_counters_size(int max, int keysize, int ncounters)
{
	return add_size(buckets_size(pg_nextpower2_32(max)),
					mul_size(max, row_size(keysize, ncounters)));
}

void
fence_counters_init(FenceCounters *set, int max, int keysize, int ncounters,
					int tranche)
{
	int			i;
	int			j;

	LWLockInitialize(&set->lock, tranche);
	set->max = max;
	set->ncounters = ncounters;
	set->nbuckets = pg_nextpower2_32(max);
	set->rows = buckets_size(set->nbuckets);
	set->row_size = row_size(keysize, ncounters);
	set->hand = 0;
	for (i = 0; i < set->nbuckets; i++)
		set->buckets[i] = NO_ROW;
	for (i = 0; i < max; i++)
	{
		Row		   *row = row_at(set, i);

		row->dbid = InvalidOid;
		pg_atomic_init_u32(&row->uses, 0);
		for (j = 0; j < set->ncounters; j++)
			pg_atomic_init_u64(&row->counters[j], 0);
	}
}

static int *
bucket_of(FenceCounters *set, Oid dbid, uint64 hash)
{
	return &set->buckets[(hash ^ dbid) & (set->nbuckets - 1)];
}

static Row *
find_row(FenceCounters *set, Oid dbid, const FenceCounterKey *key)
{
	int			i = *bucket_of(set, dbid, key->hash);

	while (i != NO_ROW)
	{
		Row		   *row = row_at(set, i);

		if (row->hash == key->hash && row->dbid == dbid &&
			row->keylen == key->len &&
			memcmp(row_key(set, row), key->data, key->len) == 0)
			return row;
		i = row->next;
	}
	return NULL;
}

static void
link_row(FenceCounters *set, int i, Oid dbid, const FenceCounterKey *key)
{
	Row		   *row = row_at(set, i);
	int		   *bucket = bucket_of(set, dbid, key->hash);

	row->dbid = dbid;
	row->hash = key->hash;
	row->keylen = key->len;
	memcpy(row_key(set, row), key->data, key->len);
	row->next = *bucket;
	*bucket = i;
}

static void
unlink_row(FenceCounters *set, int i)
{
	Row		   *row = row_at(set, i);
	int		   *link = bucket_of(set, row->dbid, row->hash);

	while (*link != i)
		link = &row_at(set, *link)->next;
	*link = row->next;
	row->dbid = InvalidOid;
}

static void
clear_row(FenceCounters *set, Row *row)
{
	int			i;

	for (i = 0; i < set->ncounters; i++)
		pg_atomic_write_u64(&row->counters[i], 0);
}

/* Moves what the row has counted to another one. */
static void
move_counters(FenceCounters *set, Row *from, Row *to)
{
	int			i;

	for (i = 0; i < set->ncounters; i++)
		pg_atomic_fetch_add_u64(&to->counters[i],
								pg_atomic_read_u64(&from->counters[i]));
	clear_row(set, from);
}

/*
 * Goes round until it finds a row that is free or not used any more; NO_ROW
 * if all that is left are the rests of databases.
 */
static int
next_victim(FenceCounters *set)
{
	int			steps = (MAX_USES + 1) * set->max;

	while (steps-- > 0)
	{
		int			i = set->hand;
		Row		   *row = row_at(set, i);
		uint32		uses = pg_atomic_read_u32(&row->uses);

		set->hand = (set->hand + 1) % set->max;
		if (!OidIsValid(row->dbid))
			return i;
		if (row->keylen == 0)
			continue;
		if (uses == 0)
			return i;
		pg_atomic_write_u32(&row->uses, uses - 1);
	}
	return NO_ROW;
}

/*
 * Makes room for a row.  The first one of a database that has to go becomes
 * its rest, and another one has to.
 */
static int
free_row(FenceCounters *set)
{
	int			i;

	while ((i = next_victim(set)) != NO_ROW)
	{
		Row		   *row = row_at(set, i);
		Oid			dbid = row->dbid;
		Row		   *to;

		if (!OidIsValid(dbid))
			break;
		unlink_row(set, i);
		to = find_row(set, dbid, &rest);
		if (to != NULL)
		{
			move_counters(set, row, to);
			break;
		}
		link_row(set, i, dbid, &rest);
	}
	return i;
}

/*
 * Makes a row where all of them are rests: ours takes in what there is to
 * count, or another database's gives way.
 */
static Row *
make_row_of_rest(FenceCounters *set, const FenceCounterKey *key)
{
	Row		   *ours = find_row(set, MyDatabaseId, &rest);
	int			i = set->hand;

	if (ours != NULL)
		return ours;
	set->hand = (i + 1) % set->max;
	unlink_row(set, i);
	clear_row(set, row_at(set, i));
	link_row(set, i, MyDatabaseId, key);
	return row_at(set, i);
}

static Row *
make_row(FenceCounters *set, const FenceCounterKey *key)
{
	int			i = free_row(set);

	if (i == NO_ROW)
		return make_row_of_rest(set, key);
	link_row(set, i, MyDatabaseId, key);
	pg_atomic_write_u32(&row_at(set, i)->uses, 1);
	return row_at(set, i);
}

/*
 * Two that use the row at the same time may count as one; but never are there
 * more than the hand takes away in its rounds.
 */
static void
count_use(Row *row)
{
	uint32		uses = pg_atomic_read_u32(&row->uses);

	if (uses < MAX_USES)
		pg_atomic_write_u32(&row->uses, uses + 1);
}

/*
 * Adds to counters of one row, made if it is not there.
 */
void
fence_counters_add(FenceCounters *set, const FenceCounterKey *key,
				   const FenceIncrement *increments, int count)
{
	Row		   *row;
	int			i;

	LWLockAcquire(&set->lock, LW_SHARED);
	row = find_row(set, MyDatabaseId, key);
	if (row == NULL)
	{
		LWLockRelease(&set->lock);
		LWLockAcquire(&set->lock, LW_EXCLUSIVE);
		row = find_row(set, MyDatabaseId, key);
		if (row == NULL)
			row = make_row(set, key);
	}
	count_use(row);
	for (i = 0; i < count; i++)
		pg_atomic_fetch_add_u64(&row->counters[increments[i].counter],
								increments[i].amount);
	LWLockRelease(&set->lock);
}

int
fence_counters_max(const FenceCounters *set)
{
	return set->max;
}

/*
 * Copies row i; false if it is free or belongs to another database.  The
 * caller's buffers have room for the longest key and for all counters.
 */
bool
fence_counters_get(FenceCounters *set, int i, char *key, int *len,
				   uint64 *values)
{
	Row		   *row = row_at(set, i);
	bool		ours;
	int			j;

	LWLockAcquire(&set->lock, LW_SHARED);
	ours = (row->dbid == MyDatabaseId);
	if (ours)
	{
		*len = row->keylen;
		memcpy(key, row_key(set, row), row->keylen);
		for (j = 0; j < set->ncounters; j++)
			values[j] = pg_atomic_read_u64(&row->counters[j]);
	}
	LWLockRelease(&set->lock);
	return ours;
}

/*
 * Forgets all rows of this database.
 */
void
fence_counters_reset(FenceCounters *set)
{
	int			i;

	LWLockAcquire(&set->lock, LW_EXCLUSIVE);
	for (i = 0; i < set->max; i++)
	{
		Row		   *row = row_at(set, i);

		if (row->dbid != MyDatabaseId)
			continue;
		unlink_row(set, i);
		clear_row(set, row);
	}
	LWLockRelease(&set->lock);
}
