/*-------------------------------------------------------------------------
 *
 * unique.h
 *	  Rows that can only be there once.
 *
 * IDENTIFICATION
 *	  src/unique.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_UNIQUE_H
#define FENCE_UNIQUE_H

#include "executor/tuptable.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

/* A table of pg_fence that is unique in its first column. */
typedef struct FenceUnique
{
	Relation	heap;
	Relation	index;
	RegProcedure equal;			/* of that column's type */
	TupleTableSlot *slot;		/* the row that was found or inserted */
} FenceUnique;

extern void fence_unique_open(FenceUnique *table, const char *relname,
							  int natts, RegProcedure equal, LOCKMODE mode);
extern void fence_unique_close(FenceUnique *table);
extern bool fence_unique_look_up(FenceUnique *table, Datum key);
extern bool fence_unique_find(FenceUnique *table, Datum key);
extern bool fence_unique_fetch_own(FenceUnique *table, ItemPointerData tid);
extern bool fence_unique_visible(FenceUnique *table);
extern bool fence_unique_insert(FenceUnique *table, const Datum *values,
								const bool *nulls);
extern bool fence_unique_update(FenceUnique *table, ItemPointer tid,
								HeapTuple tuple);

#endif							/* FENCE_UNIQUE_H */
