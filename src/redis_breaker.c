/*-------------------------------------------------------------------------
 *
 * redis_breaker.c
 *	  Servers that are left alone for a while after a failure.
 *
 * Where there is shared memory, what one backend has found out about a server
 * spares the others the attempt.  The clock must be one that all processes
 * of the machine share; the monotonic one is.
 *
 * IDENTIFICATION
 *	  src/redis_breaker.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "redis_breaker.h"

/* Servers that can be down at the same time; of more, each session learns. */
#define MAX_BREAKERS	32

typedef struct SharedBreaker
{
	Oid			dbid;
	FenceRedisKey key;
	FenceBreaker breaker;
} SharedBreaker;

typedef struct Breakers
{
	LWLock		lock;
	SharedBreaker items[MAX_BREAKERS];
} Breakers;

Size
fence_breakers_size(const FenceLimits *limits)
{
	return sizeof(Breakers);
}

void
fence_breakers_init(void *part, const FenceLimits *limits, int tranche)
{
	Breakers   *breakers = part;

	memset(breakers, 0, sizeof(Breakers));
	LWLockInitialize(&breakers->lock, tranche);
}

static bool
is_for(const SharedBreaker *item, const FenceRedisKey *key)
{
	return item->dbid == MyDatabaseId && item->key.server == key->server &&
		item->key.mapping == key->mapping;
}

/*
 * Has anybody opened the breaker of this server?  What went wrong by other
 * options does not count.
 */
bool
fence_breaker_shared(const FenceRedisKey *key, uint32 options, double now,
					 FenceBreaker *breaker)
{
	Breakers   *breakers = fence_shared(FENCE_PART_BREAKERS);
	bool		found = false;
	int			i;

	if (breakers == NULL)
		return false;
	LWLockAcquire(&breakers->lock, LW_SHARED);
	for (i = 0; i < MAX_BREAKERS && !found; i++)
	{
		const SharedBreaker *item = &breakers->items[i];

		found = is_for(item, key) && item->breaker.options == options &&
			item->breaker.open_until > now;
		if (found)
			*breaker = item->breaker;
	}
	LWLockRelease(&breakers->lock);
	return found;
}

/*
 * Tells the others: in the place of what was told before, or in one that is
 * out of date.  If there is none, they will find out themselves.
 */
void
fence_breaker_share(const FenceRedisKey *key, double now,
					const FenceBreaker *breaker)
{
	Breakers   *breakers = fence_shared(FENCE_PART_BREAKERS);
	SharedBreaker *place = NULL;
	int			i;

	if (breakers == NULL)
		return;
	LWLockAcquire(&breakers->lock, LW_EXCLUSIVE);
	for (i = 0; i < MAX_BREAKERS; i++)
	{
		SharedBreaker *item = &breakers->items[i];

		if (is_for(item, key))
		{
			place = item;
			break;
		}
		if (item->breaker.open_until <= now)
			place = item;
	}
	if (place != NULL)
	{
		place->dbid = MyDatabaseId;
		place->key = *key;
		place->breaker = *breaker;
	}
	LWLockRelease(&breakers->lock);
}
