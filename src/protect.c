/*-------------------------------------------------------------------------
 *
 * protect.c
 *	  SQL functions that put a guard on a table and take it away.
 *
 * The triggers belong to the table's owner, not to the extension: pg_dump
 * writes them out with the table.
 *
 * IDENTIFICATION
 *	  src/protect.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/parse_func.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "args.h"
#include "compat.h"
#include "guard.h"
#include "policy.h"
#include "redis_lease.h"

PG_FUNCTION_INFO_V1(fence_protect);
PG_FUNCTION_INFO_V1(fence_unprotect);

#define TEMPLATE_MAX	8192

/*
 * Triggers of one event fire in the byte order of their names; a tilde sorts
 * after every letter, so ours see what the user's have made of a row.
 */
typedef enum GuardTrigger
{
	GUARD_STATEMENT,
	GUARD_BEFORE_ROW,
	GUARD_AFTER_ROW,
	GUARD_AFTER_WRITE,			/* the same, but for DELETE */
	GUARD_TRUNCATE,
	GUARD_TRIGGERS				/* count */
} GuardTrigger;

static const struct
{
	const char *name;
	const char *event;
	const char *level;
}			guard_triggers[GUARD_TRIGGERS] = {
	[GUARD_STATEMENT] = {
		"~fence_statement", "AFTER INSERT OR UPDATE OR DELETE", "STATEMENT"
	},
	[GUARD_BEFORE_ROW] = {
		FENCE_BEFORE_ROW_NAME, "BEFORE INSERT OR UPDATE OR DELETE", "ROW"
	},
	[GUARD_AFTER_ROW] = {
		FENCE_AFTER_ROW_NAME, "AFTER INSERT OR UPDATE OR DELETE", "ROW"
	},
	[GUARD_AFTER_WRITE] = {
		"~fence_after_write", "AFTER INSERT OR UPDATE", "ROW"
	},
	[GUARD_TRUNCATE] = {
		"~fence_truncate", "BEFORE TRUNCATE", "STATEMENT"
	}
};

static Oid
guard_function(void)
{
	return LookupFuncName(list_make2(makeString("fence"), makeString("guard")),
						  0, NULL, false);
}

/*
 * The triggers of a partition that come from its parent go with those.
 */
static void
check_not_cloned(Relation relation)
{
	Oid			guard = guard_function();
	int			i;

	for (i = 0; relation->trigdesc && i < relation->trigdesc->numtriggers; i++)
	{
		Trigger    *trigger = &relation->trigdesc->triggers[i];

		if (trigger->tgfoid == guard && trigger->tgisclone)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("partition \"%s\" is guarded through its parent",
							RelationGetRelationName(relation)),
					 errhint("Protect or unprotect the partitioned table."),
					 errtable(relation)));
	}
}

/*
 * Opens the target for a change of its triggers.  The owner is checked
 * before the lock is taken, so that nobody else can block the table.
 */
static Relation
open_target(FunctionCallInfo fcinfo)
{
	Oid			relid;
	char	   *name;
	Relation	relation;

	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("target table must not be null")));
	relid = PG_GETARG_OID(0);
	name = get_rel_name(relid);
	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (!fence_owns_relation(relid))
		aclcheck_error(ACLCHECK_NOT_OWNER,
					   get_relkind_objtype(get_rel_relkind(relid)), name);

	relation = relation_open(relid, ShareRowExclusiveLock);
	if (relation->rd_rel->relkind != RELKIND_RELATION &&
		relation->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot protect \"%s\"", name),
				 errdetail("Only tables and partitioned tables can be protected: the rows of views and foreign tables are written elsewhere."),
				 errtable(relation)));
	check_not_cloned(relation);
	return relation;
}

/*
 * Raises for tables whose rows can be reached past any trigger.
 */
static void
check_protectable(Relation relation)
{
	List	   *children;
	ListCell   *lc;
	bool		partitioned;

	if (IsSystemRelation(relation) ||
		RelationGetNamespace(relation) == get_namespace_oid("fence", false))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot protect \"%s\"",
						RelationGetRelationName(relation)),
				 errdetail("It belongs to the system or to pg_fence itself."),
				 errtable(relation)));

	partitioned = relation->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	children = find_all_inheritors(RelationGetRelid(relation),
								   ShareRowExclusiveLock, NULL);
	foreach(lc, children)
	{
		Oid			child = lfirst_oid(lc);

		if (child == RelationGetRelid(relation))
			continue;
		if (!partitioned || get_rel_relkind(child) == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot protect \"%s\"",
							RelationGetRelationName(relation)),
					 errdetail("Its %s \"%s\" would not be covered.",
							   partitioned ? "foreign partition" :
							   "inheritance child", get_rel_name(child)),
					 errhint("Protect tables without inheritance children, or use partitions."),
					 errtable(relation)));
	}
}

/*
 * Can the action of a foreign key change rows of this table?  Such an action
 * runs as a statement even if it finds no row.
 */
static bool
foreign_key_reaches(Relation relation)
{
	Relation	catalog = table_open(ConstraintRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		reaches = false;

	ScanKeyInit(&key, Anum_pg_constraint_conrelid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(RelationGetRelid(relation)));
	scan = systable_beginscan(catalog, ConstraintRelidTypidNameIndexId, true,
							  NULL, 1, &key);
	while (!reaches && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_constraint constraint = (Form_pg_constraint) GETSTRUCT(tuple);

		reaches = constraint->contype == CONSTRAINT_FOREIGN &&
			(strchr("cnd", constraint->confdeltype) != NULL ||
			 strchr("cnd", constraint->confupdtype) != NULL);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return reaches;
}

/*
 * The cheapest triggers that are right.  A statement trigger sees only
 * statements that name its table: not those on a parent, and it would judge
 * actions of foreign keys that change nothing.
 */
static void
choose_triggers(Relation relation, const FencePolicy *policy,
				bool chosen[GUARD_TRIGGERS])
{
	memset(chosen, 0, GUARD_TRIGGERS * sizeof(bool));
	chosen[GUARD_TRUNCATE] = true;
	if (policy->token_column == NULL && policy->key_column == NULL &&
		!policy->has_columns &&
		relation->rd_rel->relkind == RELKIND_RELATION &&
		!has_superclass(RelationGetRelid(relation)) &&
		!foreign_key_reaches(relation))
		chosen[GUARD_STATEMENT] = true;
	else
	{
		chosen[GUARD_BEFORE_ROW] = policy->token_column != NULL ||
			policy->key_column != NULL;
		chosen[policy->token_column != NULL ? GUARD_AFTER_WRITE :
			   GUARD_AFTER_ROW] = true;
	}
}

static char *
qualified_name(Oid relid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
									  get_rel_name(relid));
}

static void
run_ddl(const char *command)
{
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\"", command);
}

static void
create_trigger(Oid relid, GuardTrigger which, const char *argument)
{
	run_ddl(psprintf("CREATE OR REPLACE TRIGGER %s %s ON %s FOR EACH %s EXECUTE FUNCTION fence.guard(%s)",
					 quote_identifier(guard_triggers[which].name),
					 guard_triggers[which].event, qualified_name(relid),
					 guard_triggers[which].level, argument));
}

static void
drop_trigger(Oid relid, const char *name)
{
	run_ddl(psprintf("DROP TRIGGER %s ON %s", quote_identifier(name),
					 qualified_name(relid)));
}

/*
 * Drops the guard's triggers on one relation, except the chosen ones, which
 * are about to be replaced: there is no moment without a guard, and no need
 * for a lock that keeps readers out.  Returns whether there were any.
 */
static bool
drop_triggers(Oid relid, const bool chosen[GUARD_TRIGGERS])
{
	Relation	relation = relation_open(relid, NoLock);
	Oid			guard = guard_function();
	List	   *unwanted = NIL;
	bool		found = false;
	ListCell   *lc;
	int			i;
	int			which;

	for (i = 0; relation->trigdesc && i < relation->trigdesc->numtriggers; i++)
	{
		Trigger    *trigger = &relation->trigdesc->triggers[i];

		for (which = 0; which < GUARD_TRIGGERS; which++)
		{
			if (chosen[which] &&
				strcmp(trigger->tgname, guard_triggers[which].name) == 0)
				break;
		}
		if (trigger->tgfoid != guard)
		{
			if (which < GUARD_TRIGGERS)
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_OBJECT),
						 errmsg("table \"%s\" has a trigger \"%s\" of its own",
								RelationGetRelationName(relation),
								trigger->tgname),
						 errhint("Rename it."),
						 errtable(relation)));
			continue;
		}
		/* on a partition, from its parent */
		if (trigger->tgisclone)
			continue;
		found = true;
		if (which == GUARD_TRIGGERS)
			unwanted = lappend(unwanted, pstrdup(trigger->tgname));
	}
	relation_close(relation, NoLock);

	foreach(lc, unwanted)
		drop_trigger(relid, lfirst(lc));
	return found;
}

/* The relation itself, and the partitions: TRUNCATE can name each of them. */
static List *
with_partitions(Relation relation)
{
	return find_all_inheritors(RelationGetRelid(relation),
							   ShareRowExclusiveLock, NULL);
}

static void
create_triggers(Relation relation, const FencePolicy *policy)
{
	bool		chosen[GUARD_TRIGGERS];
	bool		on_partition[GUARD_TRIGGERS] = {false};
	char	   *argument = quote_literal_cstr(fence_policy_write(policy));
	ListCell   *lc;
	int			which;

	choose_triggers(relation, policy, chosen);
	on_partition[GUARD_TRUNCATE] = true;
	foreach(lc, with_partitions(relation))
	{
		Oid			relid = lfirst_oid(lc);
		const bool *wanted = relid == RelationGetRelid(relation) ?
			chosen : on_partition;

		(void) drop_triggers(relid, wanted);
		for (which = 0; which < GUARD_TRIGGERS; which++)
		{
			if (wanted[which])
				create_trigger(relid, which, argument);
		}
	}
}

static const char *
optional_name(FunctionCallInfo fcinfo, int n)
{
	return PG_ARGISNULL(n) ? NULL : pstrdup(NameStr(*PG_GETARG_NAME(n)));
}

/* The server that keeps the leases must be there, and the owner's to use. */
static void
check_store(const char *lease)
{
	FenceRedis *redis = NULL;

	if (fence_lease_in_store(lease))
		fence_verdict_raise(ERROR, fence_redis_find(lease, &redis), NULL);
}

static const char *
optional_text(FunctionCallInfo fcinfo, int n, const char *what)
{
	return fence_arg_text(fcinfo, n, what, NAMEDATALEN, true);
}

/*
 * Keys are claimed in the scope of the table.  It is the name that the table
 * had when it first got a key column, kept in the policy: neither a rename
 * nor a dump, as would change the OID, makes the table forget its keys.
 */
static const char *
key_scope(Relation relation)
{
	Oid			guard = guard_function();
	const char *scope = NULL;
	int			i;

	for (i = 0; relation->trigdesc && i < relation->trigdesc->numtriggers; i++)
	{
		const Trigger *trigger = &relation->trigdesc->triggers[i];

		if (trigger->tgfoid == guard && scope == NULL)
			scope = fence_policy_argument(trigger->tgargs, trigger->tgnargs,
										  FENCE_POLICY_KEY_SCOPE);
	}
	return scope != NULL ? scope : qualified_name(RelationGetRelid(relation));
}

/* The arguments of fence.protect() as a policy. */
static FencePolicy *
policy_of_arguments(FunctionCallInfo fcinfo, Relation relation)
{
	const char *texts[FENCE_POLICY_ARGUMENTS] = {
		[FENCE_POLICY_RESOURCE] = fence_arg_text(fcinfo, 1, "resource template",
												 TEMPLATE_MAX, false),
		[FENCE_POLICY_TOKEN_COLUMN] = optional_name(fcinfo, 2),
		[FENCE_POLICY_MARKS] = optional_text(fcinfo, 3, "marks"),
		[FENCE_POLICY_LEASE] = optional_text(fcinfo, 4, "lease"),
		[FENCE_POLICY_MODE] = fence_arg_text(fcinfo, 5, "mode", NAMEDATALEN,
											 false),
		[FENCE_POLICY_KEY_COLUMN] = optional_name(fcinfo, 6),
		[FENCE_POLICY_ON_DUPLICATE] = fence_arg_text(fcinfo, 7, "on_duplicate",
													 NAMEDATALEN, false)
	};

	if (texts[FENCE_POLICY_KEY_COLUMN] != NULL)
		texts[FENCE_POLICY_KEY_SCOPE] = key_scope(relation);
	return fence_policy_make(texts);
}

/*
 * fence.protect(target regclass, resource text, token_column name,
 *				 marks text, lease text, mode text, key_column name,
 *				 on_duplicate text)
 *
 * May be called again to change the policy.
 */
Datum
fence_protect(PG_FUNCTION_ARGS)
{
	Relation	relation;
	FencePolicy *policy;
	const FenceVerdict *problem;
	FenceSite	site;

	relation = open_target(fcinfo);
	policy = policy_of_arguments(fcinfo, relation);
	check_store(policy->lease);
	check_protectable(relation);
	site.relation = relation;
	problem = fence_policy_bind(policy, relation, &site.attnum);
	fence_verdict_raise(ERROR, problem, &site);

	SPI_connect();
	create_triggers(relation, policy);
	SPI_finish();
	relation_close(relation, NoLock);
	PG_RETURN_VOID();
}

/*
 * fence.unprotect(target regclass) returns boolean: was there a guard?
 */
Datum
fence_unprotect(PG_FUNCTION_ARGS)
{
	static const bool none[GUARD_TRIGGERS] = {false};
	Relation	relation = open_target(fcinfo);
	bool		found = false;
	ListCell   *lc;

	SPI_connect();
	foreach(lc, with_partitions(relation))
		found |= drop_triggers(lfirst_oid(lc), none);
	SPI_finish();
	relation_close(relation, NoLock);
	PG_RETURN_BOOL(found);
}
