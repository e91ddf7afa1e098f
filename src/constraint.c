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
 * A session in which the library is not loaded yet can make such a constraint.
 * It is reported by fence.audit(), and what claims is refused when the
 * constraint calls it.  A function is not told who calls it; but the
 * expression of a constraint is made by the executor, in the same memory as
 * what it needs to evaluate it, and one of a statement is part of a plan.
 * Arguments of CALL and EXECUTE are made like that, too: so there must also be
 * such a constraint, on a table that the transaction writes to.
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
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
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

/* Does this transaction hold a lock as whoever writes to the table does? */
static bool
is_written(Oid relid)
{
	LOCKTAG		tag;
	LOCKMODE	mode;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, relid);
	for (mode = RowExclusiveLock; mode <= MaxLockMode; mode++)
	{
		if (fence_lock_held_by_me(&tag, mode))
			return true;
	}
	return false;
}

/*
 * Raises 42P17 if this is a CHECK constraint of a table that is written to.
 * That it calls the function is known.
 */
static void
refuse_written(Oid constraint, Oid function)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID,
										ObjectIdGetDatum(constraint));
	Form_pg_constraint form;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_constraint) GETSTRUCT(tuple);
	if (form->contype == CONSTRAINT_CHECK && is_written(form->conrelid))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_OBJECT_DEFINITION),
				 errmsg("cannot use fence.%s() in a CHECK constraint",
						get_func_name(function)),
				 errdetail("Constraint \"%s\" of table \"%s\" does.",
						   NameStr(form->conname),
						   get_rel_name(form->conrelid)),
				 errhint("Drop the constraint.")));
	ReleaseSysCache(tuple);
}

/*
 * Raises 42P17 if a CHECK constraint of a table calls the function.
 */
void
fence_prevent_in_constraint(const FmgrInfo *flinfo)
{
	Relation	depend;
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	if (flinfo->fn_expr == NULL ||
		GetMemoryChunkContext(flinfo->fn_expr) != flinfo->fn_mcxt)
		return;

	depend = table_open(DependRelationId, AccessShareLock);
	ScanKeyInit(&key[0], Anum_pg_depend_refclassid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(ProcedureRelationId));
	ScanKeyInit(&key[1], Anum_pg_depend_refobjid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(flinfo->fn_oid));
	scan = systable_beginscan(depend, DependReferenceIndexId, true, NULL, 2,
							  key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend form = (Form_pg_depend) GETSTRUCT(tuple);

		if (form->classid == ConstraintRelationId)
			refuse_written(form->objid, flinfo->fn_oid);
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
