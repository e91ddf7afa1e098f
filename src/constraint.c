/*-------------------------------------------------------------------------
 *
 * constraint.c
 *	  Keeps our functions out of CHECK constraints.
 *
 * PostgreSQL refuses a volatile function in an index or a generated column,
 * but not in a CHECK.  There it would be called again when the table is
 * restored, rewritten or attached, and find the key that it claimed itself:
 * the rows of a dump would be refused as repeated.
 *
 * A session in which the library is not loaded yet does not get here; what it
 * makes is reported by fence.audit().
 *
 * IDENTIFICATION
 *	  src/constraint.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_proc.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "constraint.h"

static object_access_hook_type previous_hook = NULL;

/* Is it one of ours that is not a mere calculation? */
static bool
has_effect(Oid function)
{
	return get_func_namespace(function) == get_namespace_oid("fence", true) &&
		func_volatile(function) == PROVOLATILE_VOLATILE;
}

/*
 * The constraint has just been made: neither it nor its dependencies can be
 * seen by a snapshot of this command.
 */
static void
refuse_effects(Oid constraint)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key[0], Anum_pg_depend_classid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(ConstraintRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_objid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(constraint));
	scan = systable_beginscan(depend, DependDependerIndexId, true,
							  SnapshotSelf, 2, key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->refclassid == ProcedureRelationId &&
			has_effect(form->refobjid))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
					 errmsg("cannot use fence.%s() in a CHECK constraint",
							get_func_name(form->refobjid)),
					 errdetail("It would be called again, with another result, when the table is restored or rewritten."),
					 errhint("Call it in the statement that writes, or see the key_column argument of fence.protect().")));
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}

static void
access_hook(ObjectAccessType access, Oid classId, Oid objectId, int subId,
			void *arg)
{
	if (previous_hook != NULL)
		previous_hook(access, classId, objectId, subId, arg);
	if (access == OAT_POST_CREATE && classId == ConstraintRelationId)
		refuse_effects(objectId);
}

/*
 * Once per backend.
 */
void
fence_constraint_init(void)
{
	previous_hook = object_access_hook;
	object_access_hook = access_hook;
}
