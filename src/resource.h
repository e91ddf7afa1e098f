/*-------------------------------------------------------------------------
 *
 * resource.h
 *	  Rows of fence.resource and the lock of a resource.
 *
 * IDENTIFICATION
 *	  src/resource.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_RESOURCE_H
#define FENCE_RESOURCE_H

#include "access/htup.h"
#include "executor/tuptable.h"
#include "nodes/pg_list.h"
#include "storage/buf.h"
#include "storage/itemptr.h"
#include "storage/lock.h"
#include "utils/relcache.h"
#include "utils/snapshot.h"
#include "utils/timestamp.h"

/* A resource name has 1 to this many bytes, so do holders. */
#define FENCE_RESOURCE_MAX	512

/*
 * Roles on the lock tag of a resource.  Which mode stands for which role is
 * what makes the protocol work, see resource.c.
 */
#define FENCE_LOCK_COMMIT	RowShareLock
#define FENCE_LOCK_GATE		ShareUpdateExclusiveLock
#define FENCE_LOCK_TAKEOVER	ExclusiveLock

/* A resource's name, with the hash that is its lock key. */
typedef struct FenceName
{
	const char *data;			/* not NUL-terminated */
	int			len;
	uint64		key;
} FenceName;

/* By what a version of a row is known again, as long as it is the last one. */
typedef struct FenceVersion
{
	Buffer		buffer;			/* InvalidBuffer: it is not known again */
	ItemPointerData tid;
	TransactionId xmin;
	uint64		definition;		/* of the table, see resource.c */
} FenceVersion;

/* One version of a row of fence.resource. */
typedef struct FenceRow
{
	bool		found;			/* false: no row, mark is the floor */
	HeapTuple	tuple;			/* the version that was read */
	FenceVersion version;
	int64		token;			/* last number issued here, 0 if none was */
	int64		mark;			/* high-water mark */
	char	   *mark_holder;	/* who presented or acquired it, or NULL */
	TimestampTz marked_at;
	char	   *holder;			/* of the lease, NULL if there never was one */
	char	   *request_id;
	TimestampTz acquired_at;
	TimestampTz expires_at;
	bool		released;
	TimestampTz released_at;
	int64		renewals;
	int64		home;			/* the database that granted the lease */
	char	   *lease;			/* server that keeps it too, or NULL */
	char	   *lease_value;	/* under which it does */
	int64		acquisitions;	/* leases granted so far */
	int64		takeovers;		/* of leases of others that had run out */
	int64		hold_total;		/* of leases that have ended, microseconds */
	int64		hold_max;
} FenceRow;

extern void fence_resource_init(void);

extern FenceName fence_name(const char *data, int len);

extern void fence_lock_presence(const FenceName *name, int64 token);
extern List *fence_older_presenters(const FenceName *name, int64 mark,
									int *prepared);
extern void fence_lock(const FenceName *name, LOCKMODE mode);
extern bool fence_lock_nowait(const FenceName *name, LOCKMODE mode);
extern bool fence_lock_within(const FenceName *name, LOCKMODE mode, int ms);
extern bool fence_lock_held(const FenceName *name, LOCKMODE mode);
extern void fence_unlock(const FenceName *name, LOCKMODE mode);
extern bool fence_lock_contested(const FenceName *name, LOCKMODE mode);

extern bool fence_resource_exists(void);
extern Relation fence_resource_open(LOCKMODE mode);
extern void fence_row_of_slot(TupleTableSlot *slot, FenceName *name,
							  FenceRow *row);
extern void fence_row_read(const FenceName *name, FenceRow *row);
extern void fence_row_read_at(const FenceName *name, Snapshot snapshot,
							  FenceRow *row);
extern void fence_row_write(const FenceName *name, FenceRow *row);
extern void fence_row_delete(const FenceName *name, const FenceRow *row);
extern void fence_floor_raise(int64 mark);
extern bool fence_row_unchanged(const FenceVersion *version);
extern bool fence_row_outranks(const FenceRow *row, int64 token);

extern bool fence_lease_live(const FenceRow *row, TimestampTz now);
extern bool fence_lease_live_at_commit(const FenceRow *row, TimestampTz now);
extern int64 fence_home(void);
extern Datum fence_interval(int64 usecs);

#endif							/* FENCE_RESOURCE_H */
