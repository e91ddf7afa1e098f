/*-------------------------------------------------------------------------
 *
 * compat.h
 *	  Every test of the server's version in pg_fence.
 *
 * Callers use one spelling; what differs between the supported major
 * versions is hidden here.
 *
 * IDENTIFICATION
 *	  src/compat.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_COMPAT_H
#define FENCE_COMPAT_H

#include "access/genam.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/plannodes.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"

#if PG_VERSION_NUM < 150000
#error "pg_fence needs PostgreSQL 15 or later"
#endif

/* Does this backend hold exactly this mode?  17 added "or a stronger one". */
static inline bool
fence_lock_held_by_me(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/* 18 added instrumentation to index scans. */
static inline IndexScanDesc
fence_index_beginscan(Relation heap, Relation index, Snapshot snapshot,
					  int nkeys)
{
#if PG_VERSION_NUM >= 180000
	return index_beginscan(heap, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(heap, index, snapshot, nkeys, 0);
#endif
}

/*
 * Updates a row, waiting for whoever is changing it; false if it is not the
 * latest version any more.  16 tells which indexes need an entry.
 */
static inline bool
fence_tuple_update(Relation heap, ItemPointer tid, TupleTableSlot *slot,
				   CommandId cid, bool *needs_entry)
{
	TM_FailureData failure;
	LockTupleMode lockmode;
	TM_Result	result;
#if PG_VERSION_NUM >= 160000
	TU_UpdateIndexes indexes;
#else
	bool		indexes;
#endif

	result = table_tuple_update(heap, tid, slot, cid, InvalidSnapshot,
								InvalidSnapshot, true, &failure, &lockmode,
								&indexes);
#if PG_VERSION_NUM >= 160000
	*needs_entry = (result == TM_Ok && indexes == TU_All);
#else
	*needs_entry = (result == TM_Ok && indexes);
#endif
	return result == TM_Ok;
}

/*
 * The actions of a MERGE on its n-th result relation.  18 keeps those of
 * relations that were not pruned.
 */
static inline const List *
fence_merge_actions(const ModifyTableState *modify, int n)
{
#if PG_VERSION_NUM >= 180000
	return list_nth(modify->mt_mergeActionLists, n);
#else
	return list_nth(((const ModifyTable *) modify->ps.plan)->mergeActionLists,
					n);
#endif
}

/* 16 replaced the ownership checks by one that names the catalog. */
static inline bool
fence_owns_relation(Oid relid)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, relid, GetUserId());
#else
	return pg_class_ownercheck(relid, GetUserId());
#endif
}

#endif							/* FENCE_COMPAT_H */
