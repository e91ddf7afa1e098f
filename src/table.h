/*-------------------------------------------------------------------------
 *
 * table.h
 *	  Finding and opening the tables of pg_fence.
 *
 * IDENTIFICATION
 *	  src/table.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_TABLE_H
#define FENCE_TABLE_H

#include "storage/lockdefs.h"
#include "utils/relcache.h"

extern void fence_table_init(void);

extern Oid	fence_relid(const char *relname, bool missing_ok);
extern Relation fence_table_open(Oid relid, int natts, LOCKMODE mode);
extern Relation fence_index_open(Relation heap, LOCKMODE mode);

#endif							/* FENCE_TABLE_H */
