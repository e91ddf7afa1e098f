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

#include <hiredis/hiredis.h>

#include "access/genam.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_server.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "nodes/plannodes.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM >= 170000
#include "storage/dsm_registry.h"
#endif

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

/* 16 renamed what identifies the files of a relation. */
#if PG_VERSION_NUM >= 160000
typedef RelFileLocator FenceFiles;
#define FENCE_FILES(relation) ((relation)->rd_locator)
#else
typedef RelFileNode FenceFiles;
#define FENCE_FILES(relation) ((relation)->rd_node)
#endif

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

/* 16 replaced the privilege checks by one that names the catalog. */
static inline bool
fence_may_use_server(Oid serverid)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ForeignServerRelationId, serverid, GetUserId(),
						   ACL_USAGE) == ACLCHECK_OK;
#else
	return pg_foreign_server_aclcheck(serverid, GetUserId(),
									  ACL_USAGE) == ACLCHECK_OK;
#endif
}

/* 17 lets a resource owner own wait event sets; ours outlive them all. */
static inline WaitEventSet *
fence_wait_event_set(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

/* hiredis 1.0 counts the elements of an array by size_t. */
#if HIREDIS_MAJOR >= 1
typedef size_t FenceElementCount;
#else
typedef int FenceElementCount;
#endif

/* 17 can make shared memory for a library that is loaded late. */
static inline bool
fence_has_segments(void)
{
#if PG_VERSION_NUM >= 170000
	return true;
#else
	return false;
#endif
}

/* Attaches to the segment of this name, made and initialized if need be. */
static inline void *
fence_named_segment(const char *name, Size size, void (*init) (void *))
{
#if PG_VERSION_NUM >= 170000
	bool		found;

	return GetNamedDSMSegment(name, size, init, &found);
#else
	return NULL;
#endif
}

/* This backend's number, from 0 and below MaxBackends. */
static inline int
fence_proc_number(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/* 17 lets extensions name what they wait for. */
static inline uint32
fence_new_wait_event(const char *name)
{
#if PG_VERSION_NUM >= 170000
	return WaitEventExtensionNew(name);
#else
	return PG_WAIT_EXTENSION;
#endif
}

#endif							/* FENCE_COMPAT_H */
