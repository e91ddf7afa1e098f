/*-------------------------------------------------------------------------
 *
 * table.c
 *	  The tables of pg_fence: finding, opening, deleting from them.
 *
 * IDENTIFICATION
 *	  src/table.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "table.h"

/* A table or an index in schema fence that has been looked up. */
typedef struct KnownRelation
{
	NameData	relname;
	Oid			relid;			/* InvalidOid: none, or not known any more */
} KnownRelation;

/* Enough for all of them (backend). */
static KnownRelation known[8];

static Oid
look_up(const char *relname)
{
	Oid			relid = get_relname_relid(relname,
										  get_namespace_oid("fence", true));
	int			i;

	for (i = 0; i < (int) lengthof(known); i++)
	{
		if (!OidIsValid(known[i].relid))
		{
			namestrcpy(&known[i].relname, relname);
			known[i].relid = relid;
			break;
		}
	}
	return relid;
}

/*
 * A table or an index in schema fence.
 */
Oid
fence_relid(const char *relname, bool missing_ok)
{
	Oid			relid;
	int			i;

	for (i = 0; i < (int) lengthof(known); i++)
	{
		if (OidIsValid(known[i].relid) &&
			strcmp(NameStr(known[i].relname), relname) == 0)
			return known[i].relid;
	}
	relid = look_up(relname);
	if (!OidIsValid(relid) && !missing_ok)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"fence.%s\" does not exist", relname),
				 errhint("Run CREATE EXTENSION pg_fence in this database.")));
	return relid;
}

/*
 * Opens a table of so many columns.  A library that is newer or older than
 * the SQL objects of this database must not touch their rows.
 */
Relation
fence_table_open(Oid relid, int natts, LOCKMODE mode)
{
	Relation	heap = table_open(relid, mode);

	if (RelationGetNumberOfAttributes(heap) != natts)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the library of pg_fence and its objects in this database are of different versions"),
				 errdetail("Table \"fence.%s\" has %d columns, the library expects %d.",
						   RelationGetRelationName(heap),
						   RelationGetNumberOfAttributes(heap), natts),
				 errhint("Run ALTER EXTENSION pg_fence UPDATE, or install the library that fits.")));
	return heap;
}

/*
 * Opens the primary key of a table.
 */
Relation
fence_index_open(Relation heap, LOCKMODE mode)
{
	if (!heap->rd_indexvalid)
		list_free(RelationGetIndexList(heap));
	if (!OidIsValid(heap->rd_pkindex))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"fence.%s\" has no primary key",
						RelationGetRelationName(heap))));
	return index_open(heap->rd_pkindex, mode);
}

/*
 * Deletes the version of a row at tid; false if somebody else has locked,
 * changed or deleted it, which is not waited for.
 */
bool
fence_table_delete(Relation heap, ItemPointer tid)
{
	TM_FailureData failure;
	TM_Result	result;

	/* Whoever deletes needs one, and before a commit there is none. */
	PushActiveSnapshot(GetLatestSnapshot());
	result = table_tuple_delete(heap, tid, GetCurrentCommandId(true),
								InvalidSnapshot, InvalidSnapshot, false,
								&failure, false);
	PopActiveSnapshot();
	return result == TM_Ok;
}

static void
relcache_callback(Datum arg, Oid relid)
{
	int			i;

	for (i = 0; i < (int) lengthof(known); i++)
	{
		if (!OidIsValid(relid) || known[i].relid == relid)
			known[i].relid = InvalidOid;
	}
}

/* The schema may be another one now. */
static void
syscache_callback(Datum arg, int cacheid, uint32 hashvalue)
{
	relcache_callback(arg, InvalidOid);
}

/*
 * Once per backend.
 */
void
fence_table_init(void)
{
	CacheRegisterRelcacheCallback(relcache_callback, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, syscache_callback, (Datum) 0);
}
