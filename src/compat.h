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
#include "catalog/pg_class.h"
#include "catalog/pg_foreign_server.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

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

#endif							/* FENCE_COMPAT_H */
