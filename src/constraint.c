/*-------------------------------------------------------------------------
 *
 * constraint.c
 *	  Is a function called by a CHECK constraint?
 *
 * PostgreSQL lets constraints call volatile functions, but to claim there is
 * a trap: a row that is updated or rewritten is judged again, and finds its
 * own key claimed; a row that ON CONFLICT DO NOTHING then leaves out has used
 * its key up.
 *
 * A function is not told who calls it.  But the expression of a constraint is
 * made by the executor, in the same memory as what it needs to evaluate it;
 * one of a statement is part of a plan.  Since the arguments of CALL and
 * EXECUTE are made like that, too, there must also be a constraint that calls
 * the function, on a table that the transaction writes to.  One that calls it
 * through another function is not found.
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
#include "catalog/indexing.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "compat.h"
#include "constraint.h"

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
 * Raises 0A000 if this is a CHECK constraint of a table that is written to.
 * That it calls the function is known.
 */
static void
refuse_check(Oid constraint, Oid function)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID,
										ObjectIdGetDatum(constraint));
	Form_pg_constraint form;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_constraint) GETSTRUCT(tuple);
	if (form->contype == CONSTRAINT_CHECK && is_written(form->conrelid))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("operations cannot be claimed in a CHECK constraint"),
				 errdetail("Constraint \"%s\" of table \"%s\" calls %s.",
						   NameStr(form->conname),
						   get_rel_name(form->conrelid),
						   format_procedure(function)),
				 errhint("Drop the constraint.  Keys in a column are claimed by key_column of fence.protect().")));
	ReleaseSysCache(tuple);
}

/*
 * Raises 0A000 if a CHECK constraint of a table calls the function.
 */
void
fence_prevent_in_constraint(const FmgrInfo *flinfo)
{
	Relation	depend;
	SysScanDesc scan;
	ScanKeyData key[2];
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
			refuse_check(form->objid, flinfo->fn_oid);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
}
