/*-------------------------------------------------------------------------
 *
 * table.h
 *	  The tables of pg_fence: finding, opening, deleting from them.
 *
 * IDENTIFICATION
 *	  src/table.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_TABLE_H
#define FENCE_TABLE_H

#include "storage/itemptr.h"
#include "storage/lockdefs.h"
#include "utils/relcache.h"

extern void fence_table_init(void);

extern Oid	fence_relid(const char *relname, bool missing_ok);
extern Relation fence_table_open(Oid relid, int natts, LOCKMODE mode);
extern Relation fence_index_open(Relation heap, LOCKMODE mode);
extern bool fence_table_delete(Relation heap, ItemPointer tid);

#endif							/* FENCE_TABLE_H */
