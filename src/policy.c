/*-------------------------------------------------------------------------
 *
 * policy.c
 *	  What a guard demands, from the arguments of its trigger.
 *
 * The policy of a protected table is kept in the arguments of its triggers,
 * each of the form key=value, so that pg_dump carries it and no table is
 * read for it.  Columns are named there; binding looks the names up in the
 * relation as it is now.  Bound policies are cached per trigger and thrown
 * away with the relation's cache entry: a column that was renamed, dropped,
 * retyped or moved is looked up anew, and what is not found is an error.
 *
 * IDENTIFICATION
 *	  src/policy.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "errors.h"
#include "policy.h"

typedef struct CachedPolicy
{
	Oid			trigger;		/* hash key */
	Oid			relation;
	MemoryContext cxt;			/* holds the policy */
	const FencePolicy *policy;
} CachedPolicy;

/* Per backend. */
static HTAB *policies = NULL;

static const char *const marks_names[] = {
	[FENCE_MARKS_RESOURCE] = "resource",
	[FENCE_MARKS_ROW] = "row",
	[FENCE_MARKS_BOTH] = "both"
};

/* The mode's argument says whether the guard only observes. */
static bool
parse_mode(const char *mode)
{
	if (mode == NULL || strcmp(mode, "enforce") == 0)
		return false;
	if (strcmp(mode, "observe") == 0)
		return true;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized mode: \"%s\"", mode),
			 errhint("Use \"enforce\" or \"observe\".")));
}

static FenceMarks
parse_marks(const char *marks, bool token_column)
{
	int			i;

	if (marks == NULL)
		return token_column ? FENCE_MARKS_BOTH : FENCE_MARKS_RESOURCE;
	for (i = 0; i < (int) lengthof(marks_names); i++)
	{
		if (strcmp(marks, marks_names[i]) == 0)
			return (FenceMarks) i;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized marks: \"%s\"", marks),
			 errhint("Use \"resource\", \"row\" or \"both\".")));
}

static void
parse_template(FencePolicy *policy)
{
	const char *source = policy->resource;
	FenceTemplateError error;
	int			errpos;
	int			i;

	policy->parts = palloc(fence_template_max_parts(source) *
						   sizeof(FenceTemplatePart));
	error = fence_template_parse(source,
								 palloc(fence_template_buffer_size(source)),
								 policy->parts, &policy->nparts, &errpos);
	if (error != FENCE_TEMPLATE_OK)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid resource template: \"%s\"", source),
				 errdetail("At byte %d: %s.", errpos + 1,
						   fence_template_error_text(error))));
	for (i = 0; i < policy->nparts; i++)
		policy->has_columns |= policy->parts[i].is_column;
}

/*
 * Makes an unbound policy in the current memory context, or raises 22023.
 * Everything but the resource may be NULL.
 */
FencePolicy *
fence_policy_make(const char *resource, const char *token_column,
				  const char *marks, const char *lease, const char *mode)
{
	FencePolicy *policy = palloc0(sizeof(FencePolicy));

	policy->resource = pstrdup(resource);
	policy->token_column = token_column ? pstrdup(token_column) : NULL;
	policy->marks = parse_marks(marks, token_column != NULL);
	policy->lease_name = lease ? pstrdup(lease) : NULL;
	policy->lease = fence_lease_parse(lease);
	policy->observe = parse_mode(mode);
	parse_template(policy);

	if ((policy->marks == FENCE_MARKS_RESOURCE) != (token_column == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("marks \"%s\" cannot be kept %s a token column",
						marks_names[policy->marks],
						token_column ? "with" : "without"),
				 errhint("Marks \"row\" and \"both\" need a token column, \"resource\" has none.")));
	return policy;
}

/* A column of the relation that a policy can use; raises if there is none. */
static Form_pg_attribute
policy_column(Relation relation, const char *name)
{
	TupleDesc	desc = RelationGetDescr(relation);
	int			i;

	for (i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i);

		if (!column->attisdropped &&
			strcmp(NameStr(column->attname), name) == 0)
			return column;
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_COLUMN),
			 errmsg("column \"%s\" of the fence on table \"%s\" does not exist",
					name, RelationGetRelationName(relation)),
			 errhint("Call fence.protect() with columns that the table has now."),
			 errtable(relation)));
}

static void
bind_token_column(FencePolicy *policy, Relation relation)
{
	Form_pg_attribute column = policy_column(relation, policy->token_column);

	if (column->atttypid != INT8OID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("token column \"%s\" of table \"%s\" is of type %s",
						policy->token_column,
						RelationGetRelationName(relation),
						format_type_be(column->atttypid)),
				 errdetail("Fencing tokens are compared by size and need type bigint."),
				 errhint("A random lock value goes into the holder argument of fence.check()."),
				 errtablecol(relation, column->attnum)));
	if (column->attgenerated != '\0' || column->attidentity != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_COLUMN_DEFINITION),
				 errmsg("token column \"%s\" of table \"%s\" is generated",
						policy->token_column,
						RelationGetRelationName(relation)),
				 errdetail("The guard must be able to set it."),
				 errtablecol(relation, column->attnum)));
	policy->token_attnum = column->attnum;
}

/*
 * A generated column has no value yet in a BEFORE trigger, and a virtual one
 * never is in the row.
 */
static void
bind_template_column(const FencePolicy *policy, FenceColumn *bound,
					 Relation relation, const char *name)
{
	Form_pg_attribute column = policy_column(relation, name);
	Oid			output;
	bool		is_varlena;

	if (column->attgenerated != '\0' &&
		(column->attgenerated != 's' || policy->token_column != NULL))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("generated column \"%s\" cannot name the resource of table \"%s\"",
						name, RelationGetRelationName(relation)),
				 errdetail("It is not computed yet when the guard needs it."),
				 errtablecol(relation, column->attnum)));

	bound->attnum = column->attnum;
	bound->type = getBaseType(column->atttypid);
	getTypeOutputInfo(column->atttypid, &output, &is_varlena);
	fmgr_info_cxt(output, &bound->output, CurrentMemoryContext);
}

/*
 * Looks up the policy's columns in the relation; raises if one is missing or
 * of no use.  The result lives in the current memory context.
 */
void
fence_policy_bind(FencePolicy *policy, Relation relation)
{
	int			i;

	policy->columns = palloc0(policy->nparts * sizeof(FenceColumn));
	for (i = 0; i < policy->nparts; i++)
	{
		if (policy->parts[i].is_column)
			bind_template_column(policy, &policy->columns[i], relation,
								 policy->parts[i].text);
	}
	if (policy->token_column != NULL)
		bind_token_column(policy, relation);
}

/*
 * The policy as trigger arguments, a list of char *.
 */
List *
fence_policy_arguments(const FencePolicy *policy)
{
	List	   *arguments = list_make2(psprintf("resource=%s", policy->resource),
									   psprintf("marks=%s", marks_names[policy->marks]));

	if (policy->token_column != NULL)
		arguments = lappend(arguments, psprintf("token_column=%s",
												policy->token_column));
	if (policy->lease_name != NULL)
		arguments = lappend(arguments, psprintf("lease=%s",
												policy->lease_name));
	if (policy->observe)
		arguments = lappend(arguments, pstrdup("mode=observe"));
	return arguments;
}

static void
argument_error(Relation relation, const char *problem, const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("a guard trigger on table \"%s\" has %s argument \"%s\"",
					RelationGetRelationName(relation), problem, argument),
			 errhint("Let fence.protect() create the triggers."),
			 errtable(relation)));
}

/*
 * The policy that trigger arguments stand for, bound to the relation, in the
 * current memory context.
 */
FencePolicy *
fence_policy_of_arguments(Relation relation, char *const *arguments, int count)
{
	static const char *const keys[] = {
		"resource", "token_column", "marks", "lease", "mode"
	};
	const char *values[lengthof(keys)] = {NULL};
	FencePolicy *policy;
	int			arg;
	int			i;

	for (arg = 0; arg < count; arg++)
	{
		const char *argument = arguments[arg];

		for (i = 0; i < (int) lengthof(keys); i++)
		{
			int			len = strlen(keys[i]);

			if (strncmp(argument, keys[i], len) == 0 && argument[len] == '=')
				break;
		}
		if (i == (int) lengthof(keys))
			argument_error(relation, "an unknown", argument);
		if (values[i] != NULL)
			argument_error(relation, "a repeated", argument);
		values[i] = argument + strlen(keys[i]) + 1;
	}
	if (values[0] == NULL)
		argument_error(relation, "no", "resource=...");
	policy = fence_policy_make(values[0], values[1], values[2], values[3],
							   values[4]);
	fence_policy_bind(policy, relation);
	return policy;
}

/* Names the trigger, whatever is wrong with its policy. */
static void
trigger_context(void *arg)
{
	errcontext("guard trigger \"%s\"", ((const Trigger *) arg)->tgname);
}

/*
 * The bound policy of a trigger, from the cache.  It may be used until the
 * end of the transaction.
 */
const FencePolicy *
fence_policy_of_trigger(Relation relation, const Trigger *trigger)
{
	CachedPolicy *entry = hash_search(policies, &trigger->tgoid, HASH_FIND,
									  NULL);
	MemoryContext cxt;
	MemoryContext oldcxt;
	ErrorContextCallback context;
	FencePolicy *policy;

	if (entry != NULL && entry->relation == RelationGetRelid(relation))
		return entry->policy;

	/* Below the transaction, until nothing can go wrong any more. */
	cxt = AllocSetContextCreate(TopTransactionContext, "pg_fence policy",
								ALLOCSET_SMALL_SIZES);
	oldcxt = MemoryContextSwitchTo(cxt);
	context.callback = trigger_context;
	context.arg = unconstify(Trigger *, trigger);
	context.previous = error_context_stack;
	error_context_stack = &context;
	policy = fence_policy_of_arguments(relation, trigger->tgargs,
									   trigger->tgnargs);
	error_context_stack = context.previous;
	MemoryContextSwitchTo(oldcxt);

	entry = hash_search(policies, &trigger->tgoid, HASH_ENTER, NULL);
	entry->relation = RelationGetRelid(relation);
	entry->cxt = cxt;
	entry->policy = policy;
	MemoryContextSetParent(cxt, CacheMemoryContext);
	return policy;
}

/*
 * Are the tokens of this policy judged against fence.resource?
 */
bool
fence_policy_presents(const FencePolicy *policy)
{
	return policy->marks != FENCE_MARKS_ROW ||
		policy->lease != FENCE_LEASE_NONE;
}

/*
 * Settings change how some types are written; the name of a resource must
 * not depend on the session that writes the row.
 */
static int
fix_output_settings(void)
{
	static const char *const settings[][2] = {
		{"bytea_output", "hex"},
		{"datestyle", "ISO"},
		{"extra_float_digits", "1"},
		{"intervalstyle", "postgres"},
		{"lc_monetary", "C"},
		{"search_path", "pg_catalog"},
		{"timezone", "UTC"}
	};
	int			nestlevel = NewGUCNestLevel();
	int			i;

	for (i = 0; i < (int) lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1],
								 PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
	return nestlevel;
}

static void
append_column(FenceColumn *column, Datum value, StringInfo name)
{
	int			nestlevel;

	switch (column->type)
	{
		case BPCHAROID:
			{
				/* Blanks at the end are padding, as in a cast to text. */
				BpChar	   *padded = DatumGetBpCharPP(value);

				appendBinaryStringInfo(name, VARDATA_ANY(padded),
									   bpchartruelen(VARDATA_ANY(padded),
													 VARSIZE_ANY_EXHDR(padded)));
				break;
			}
		case BOOLOID:
		case CHAROID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case NAMEOID:
		case NUMERICOID:
		case OIDOID:
		case TEXTOID:
		case UUIDOID:
		case VARCHAROID:
			appendStringInfoString(name,
								   OutputFunctionCall(&column->output, value));
			break;
		default:
			nestlevel = fix_output_settings();
			appendStringInfoString(name,
								   OutputFunctionCall(&column->output, value));
			AtEOXact_GUC(true, nestlevel);
			break;
	}
}

static const FenceVerdict *
null_column(const char *column, Relation relation)
{
	return fence_verdict(ERRCODE_NULL_VALUE_NOT_ALLOWED,
						 psprintf("null value in column \"%s\", which names the resource of table \"%s\"",
								  column, RelationGetRelationName(relation)),
						 "A row without a resource cannot be fenced.",
						 "Make the column NOT NULL.");
}

static const FenceVerdict *
bad_length(const StringInfoData *name, Relation relation)
{
	return fence_verdict(ERRCODE_INVALID_PARAMETER_VALUE,
						 name->len == 0 ?
						 "resource name must not be empty" :
						 "resource name is too long",
						 psprintf("\"%.*s\" of table \"%s\" has %d bytes, 1 to %d are possible.",
								  pg_mbcliplen(name->data, name->len, 64),
								  name->data,
								  RelationGetRelationName(relation),
								  name->len, FENCE_RESOURCE_MAX),
						 "Name the resource by shorter columns.");
}

/*
 * Writes the name of the row's resource; returns a verdict, 22004 or 22023,
 * if the row has none, and sets *attnum to the column that is to blame.  A
 * slot is needed only if the template has columns.
 */
const FenceVerdict *
fence_policy_resource(const FencePolicy *policy, Relation relation,
					  TupleTableSlot *slot, StringInfo name,
					  AttrNumber *attnum)
{
	int			i;

	resetStringInfo(name);
	for (i = 0; i < policy->nparts; i++)
	{
		const FenceTemplatePart *part = &policy->parts[i];
		FenceColumn *column = &policy->columns[i];
		bool		isnull;
		Datum		value;

		if (!part->is_column)
		{
			appendBinaryStringInfo(name, part->text, part->len);
			continue;
		}
		value = slot_getattr(slot, column->attnum, &isnull);
		if (isnull)
		{
			*attnum = column->attnum;
			return null_column(part->text, relation);
		}
		append_column(column, value, name);
	}
	if (name->len == 0 || name->len > FENCE_RESOURCE_MAX)
		return bad_length(name, relation);
	return NULL;
}

/*
 * A guard further up the call stack may still be using what is thrown away
 * here, so the memory goes only with the transaction, if there is one.
 */
static void
forget(CachedPolicy *entry)
{
	if (TopTransactionContext != NULL)
		MemoryContextSetParent(entry->cxt, TopTransactionContext);
	else
		MemoryContextDelete(entry->cxt);
	(void) hash_search(policies, &entry->trigger, HASH_REMOVE, NULL);
}

static void
relcache_callback(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	CachedPolicy *entry;

	hash_seq_init(&status, policies);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (relid == InvalidOid || entry->relation == relid)
			forget(entry);
	}
}

/*
 * Once per backend.
 */
void
fence_policy_init(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(Oid);
	ctl.entrysize = sizeof(CachedPolicy);
	policies = hash_create("pg_fence policies", 16, &ctl,
						   HASH_ELEM | HASH_BLOBS);
	CacheRegisterRelcacheCallback(relcache_callback, (Datum) 0);
}
