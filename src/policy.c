/*-------------------------------------------------------------------------
 *
 * policy.c
 *	  What a guard demands, from the arguments of its trigger.
 *
 * The policy of a protected table is kept in the arguments of its triggers,
 * so that pg_dump carries it and no table is read for it.  An argument has
 * parts key=value with spaces between them; a backslash takes its meaning
 * from the character after it.  We write a single one, because the executor
 * copies each argument for each statement.  Columns are named there; binding
 * looks the names up in the relation as it is now.  Bound policies are cached
 * per trigger and thrown away with the relation's cache entry: a column that
 * was renamed, dropped, retyped or moved is looked up anew, and what is not
 * found is an error.
 *
 * IDENTIFICATION
 *	  src/policy.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "errors.h"
#include "policy.h"
#include "resource.h"

typedef struct CachedPolicy
{
	Oid			trigger;		/* hash key */
	Oid			relation;
	MemoryContext cxt;			/* holds the policy */
	const FencePolicy *policy;
} CachedPolicy;

/* Per backend. */
static HTAB *policies = NULL;

/* The one that was found last, or NULL. */
static CachedPolicy *last_found = NULL;

/* How each part is called in the arguments of a trigger. */
static const char *const argument_names[FENCE_POLICY_ARGUMENTS] = {
	[FENCE_POLICY_RESOURCE] = "resource",
	[FENCE_POLICY_MARKS] = "marks",
	[FENCE_POLICY_TOKEN_COLUMN] = "token_column",
	[FENCE_POLICY_LEASE] = "lease",
	[FENCE_POLICY_MODE] = "mode",
	[FENCE_POLICY_KEY_COLUMN] = "key_column",
	[FENCE_POLICY_KEY_SCOPE] = "key_scope",
	[FENCE_POLICY_ON_DUPLICATE] = "on_duplicate"
};

static const char *const marks_names[] = {
	[FENCE_MARKS_RESOURCE] = "resource",
	[FENCE_MARKS_ROW] = "row",
	[FENCE_MARKS_BOTH] = "both"
};

/* Which of two words is it?  False for the first one, which is the default. */
static bool
parse_choice(FencePolicyArgument which, const char *value, const char *usual,
			 const char *other)
{
	if (value == NULL || strcmp(value, usual) == 0)
		return false;
	if (strcmp(value, other) == 0)
		return true;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized %s: \"%s\"", argument_names[which], value),
			 errhint("Use \"%s\" or \"%s\".", usual, other)));
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

static const char *
copy_text(const char *text)
{
	return text != NULL ? pstrdup(text) : NULL;
}

static void
check_combination(const FencePolicy *policy)
{
	if ((policy->marks == FENCE_MARKS_RESOURCE) !=
		(policy->token_column == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("marks \"%s\" cannot be kept %s a token column",
						marks_names[policy->marks],
						policy->token_column ? "with" : "without"),
				 errhint("Marks \"row\" and \"both\" need a token column, \"resource\" has none.")));
	if (policy->skip_duplicates && policy->key_column == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("on_duplicate \"skip\" needs a key column")));
	if (policy->key_column != NULL && policy->token_column != NULL &&
		strcmp(policy->key_column, policy->token_column) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("column \"%s\" cannot hold both fencing tokens and idempotency keys",
						policy->key_column)));
}

/*
 * Makes an unbound policy of FENCE_POLICY_ARGUMENTS texts in the current
 * memory context, or raises 22023.  Everything but the resource may be NULL.
 */
FencePolicy *
fence_policy_make(const char *const *texts)
{
	FencePolicy *policy = palloc0(sizeof(FencePolicy));

	policy->resource = pstrdup(texts[FENCE_POLICY_RESOURCE]);
	policy->token_column = copy_text(texts[FENCE_POLICY_TOKEN_COLUMN]);
	policy->marks = parse_marks(texts[FENCE_POLICY_MARKS],
								policy->token_column != NULL);
	policy->lease = copy_text(texts[FENCE_POLICY_LEASE]);
	policy->observe = parse_choice(FENCE_POLICY_MODE,
								   texts[FENCE_POLICY_MODE],
								   "enforce", "observe");
	policy->key_column = copy_text(texts[FENCE_POLICY_KEY_COLUMN]);
	policy->key_scope = copy_text(texts[FENCE_POLICY_KEY_SCOPE]);
	policy->skip_duplicates = parse_choice(FENCE_POLICY_ON_DUPLICATE,
										   texts[FENCE_POLICY_ON_DUPLICATE],
										   "error", "skip");
	parse_template(policy);
	check_combination(policy);
	return policy;
}

/* A column of the relation, NULL if there is none of this name. */
static Form_pg_attribute
find_column(Relation relation, const char *name)
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
	return NULL;
}

static const FenceVerdict *
no_column(Relation relation, const char *name)
{
	return fence_verdict(ERRCODE_UNDEFINED_COLUMN,
						 psprintf("column \"%s\" of the guard on table \"%s\" does not exist",
								  name, RelationGetRelationName(relation)),
						 "The guard cannot tell what a row belongs to, or its token.",
						 "Call fence.protect() with columns that the table has now.");
}

static const FenceVerdict *
bind_token_column(FencePolicy *policy, Relation relation)
{
	const char *name = policy->token_column;
	const char *table = RelationGetRelationName(relation);
	Form_pg_attribute column = find_column(relation, name);

	if (column == NULL)
		return no_column(relation, name);
	policy->token_attnum = column->attnum;
	if (column->atttypid != INT8OID)
		return fence_verdict(ERRCODE_DATATYPE_MISMATCH,
							 psprintf("token column \"%s\" of table \"%s\" is of type %s",
									  name, table,
									  format_type_be(column->atttypid)),
							 "Fencing tokens are compared by size and need type bigint.",
							 "A random lock value goes into the holder argument of fence.check().");
	if (column->attgenerated != '\0' || column->attidentity != '\0')
		return fence_verdict(ERRCODE_INVALID_COLUMN_DEFINITION,
							 psprintf("token column \"%s\" of table \"%s\" is generated",
									  name, table),
							 "The guard must be able to set it.",
							 "Use a plain bigint column.");
	return NULL;
}

static void
bind_output(FenceColumn *bound, Form_pg_attribute column)
{
	Oid			output;
	bool		is_varlena;

	bound->attnum = column->attnum;
	bound->type = getBaseType(column->atttypid);
	bound->typlen = column->attlen;
	bound->typbyval = column->attbyval;
	getTypeOutputInfo(column->atttypid, &output, &is_varlena);
	fmgr_info_cxt(output, &bound->output, CurrentMemoryContext);
}

/*
 * A generated column has no value yet in a BEFORE trigger, and a virtual one
 * never is in the row.
 */
static const FenceVerdict *
bind_template_column(const FencePolicy *policy, FenceColumn *bound,
					 Relation relation, const char *name)
{
	Form_pg_attribute column = find_column(relation, name);

	if (column == NULL)
		return no_column(relation, name);
	bind_output(bound, column);
	if (column->attgenerated != '\0' &&
		(column->attgenerated != 's' || policy->token_column != NULL))
		return fence_verdict(ERRCODE_FEATURE_NOT_SUPPORTED,
							 psprintf("generated column \"%s\" cannot name the resource of table \"%s\"",
									  name, RelationGetRelationName(relation)),
							 "It is not computed yet when the guard needs it.",
							 "Name the resource by the columns that it is made of.");
	return NULL;
}

static const FenceVerdict *
bind_key_column(FencePolicy *policy, Relation relation)
{
	const char *name = policy->key_column;
	Form_pg_attribute column = find_column(relation, name);

	if (column == NULL)
		return no_column(relation, name);
	bind_output(&policy->key, column);
	if (column->attgenerated != '\0')
		return fence_verdict(ERRCODE_FEATURE_NOT_SUPPORTED,
							 psprintf("generated column \"%s\" cannot hold the idempotency keys of table \"%s\"",
									  name, RelationGetRelationName(relation)),
							 "It is not computed yet when the guard needs it.",
							 "Use a column that the writer sets.");
	return NULL;
}

/*
 * Integers are of limited length; so is the literal text of a template.
 */
static bool
always_fits(const FencePolicy *policy)
{
	int			len = 0;
	int			i;

	for (i = 0; i < policy->nparts; i++)
	{
		Oid			type = policy->columns[i].type;

		if (!policy->parts[i].is_column)
			len += policy->parts[i].len;
		else if (type == INT2OID || type == INT4OID || type == INT8OID)
			len += MAXINT8LEN;
		else
			return false;
	}
	return len > 0 && len <= FENCE_RESOURCE_MAX;
}

/*
 * Looks up the policy's columns in the relation.  Returns a verdict if one is
 * missing or of no use, and sets *attnum to it if it is there.  The result
 * lives in the current memory context.
 */
const FenceVerdict *
fence_policy_bind(FencePolicy *policy, Relation relation, AttrNumber *attnum)
{
	const FenceVerdict *problem = NULL;
	int			i;

	*attnum = InvalidAttrNumber;
	policy->columns = palloc0(policy->nparts * sizeof(FenceColumn));
	for (i = 0; i < policy->nparts && problem == NULL; i++)
	{
		if (!policy->parts[i].is_column)
			continue;
		problem = bind_template_column(policy, &policy->columns[i], relation,
									   policy->parts[i].text);
		*attnum = policy->columns[i].attnum;
	}
	policy->always_fits = problem == NULL && always_fits(policy);
	if (problem == NULL && policy->token_column != NULL)
	{
		problem = bind_token_column(policy, relation);
		*attnum = policy->token_attnum;
	}
	if (problem == NULL && policy->key_column != NULL)
	{
		problem = bind_key_column(policy, relation);
		*attnum = policy->key.attnum;
	}
	return problem;
}

static void
append_part(StringInfo argument, const char *name, const char *value)
{
	const char *c;

	appendStringInfo(argument, "%s%s=", argument->len > 0 ? " " : "", name);
	for (c = value; *c != '\0'; c++)
	{
		if (*c == ' ' || *c == '\\')
			appendStringInfoChar(argument, '\\');
		appendStringInfoChar(argument, *c);
	}
}

/*
 * The policy as trigger argument.
 */
char *
fence_policy_write(const FencePolicy *policy)
{
	const char *texts[FENCE_POLICY_ARGUMENTS] = {
		[FENCE_POLICY_RESOURCE] = policy->resource,
		[FENCE_POLICY_MARKS] = marks_names[policy->marks],
		[FENCE_POLICY_TOKEN_COLUMN] = policy->token_column,
		[FENCE_POLICY_LEASE] = policy->lease,
		[FENCE_POLICY_MODE] = policy->observe ? "observe" : NULL,
		[FENCE_POLICY_KEY_COLUMN] = policy->key_column,
		[FENCE_POLICY_KEY_SCOPE] = policy->key_scope,
		[FENCE_POLICY_ON_DUPLICATE] = policy->skip_duplicates ? "skip" : NULL
	};
	StringInfoData argument;
	int			i;

	initStringInfo(&argument);
	for (i = 0; i < FENCE_POLICY_ARGUMENTS; i++)
	{
		if (texts[i] != NULL)
			append_part(&argument, argument_names[i], texts[i]);
	}
	return argument.data;
}

/*
 * Takes a trigger argument apart: a list of char *.
 */
List *
fence_policy_parts(const char *argument)
{
	char	   *part = palloc(strlen(argument) + 1);
	char	   *end = part;
	List	   *parts = NIL;

	for (; *argument != '\0'; argument++)
	{
		if (*argument == ' ')
		{
			*end++ = '\0';
			parts = lappend(parts, part);
			part = end;
			continue;
		}
		if (*argument == '\\' && argument[1] != '\0')
			argument++;
		*end++ = *argument;
	}
	*end = '\0';
	return lappend(parts, part);
}

/* The value of key=value, NULL if the key is another one. */
static const char *
part_value(const char *part, const char *name)
{
	int			len = strlen(name);

	return strncmp(part, name, len) == 0 && part[len] == '=' ?
		part + len + 1 : NULL;
}

/*
 * One part of the policy in trigger arguments, NULL if it is not among them.
 */
const char *
fence_policy_argument(char *const *arguments, int count,
					  FencePolicyArgument which)
{
	const char *value;
	ListCell   *lc;
	int			i;

	for (i = 0; i < count; i++)
	{
		foreach(lc, fence_policy_parts(arguments[i]))
		{
			value = part_value(lfirst(lc), argument_names[which]);
			if (value != NULL)
				return value;
		}
	}
	return NULL;
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

/* Sets the text that the part of an argument is. */
static void
read_part(Relation relation, const char *part, const char **texts)
{
	const char *value = NULL;
	int			i;

	for (i = 0; i < FENCE_POLICY_ARGUMENTS; i++)
	{
		value = part_value(part, argument_names[i]);
		if (value != NULL)
			break;
	}
	if (value == NULL)
		argument_error(relation, "an unknown", part);
	if (texts[i] != NULL)
		argument_error(relation, "a repeated", part);
	texts[i] = value;
}

/*
 * The policy that trigger arguments stand for, bound to the relation, in the
 * current memory context.  Its problem is set if it cannot work there.
 */
FencePolicy *
fence_policy_of_arguments(Relation relation, char *const *arguments, int count)
{
	const char *texts[FENCE_POLICY_ARGUMENTS] = {NULL};
	FencePolicy *policy;
	ListCell   *lc;
	int			i;

	for (i = 0; i < count; i++)
	{
		foreach(lc, fence_policy_parts(arguments[i]))
			read_part(relation, lfirst(lc), texts);
	}
	if (texts[FENCE_POLICY_RESOURCE] == NULL)
		argument_error(relation, "no", "resource=...");
	if (texts[FENCE_POLICY_KEY_COLUMN] != NULL &&
		texts[FENCE_POLICY_KEY_SCOPE] == NULL)
		argument_error(relation, "no", "key_scope=...");
	policy = fence_policy_make(texts);
	policy->problem = fence_policy_bind(policy, relation,
										&policy->problem_attnum);
	return policy;
}

/*
 * The bound policy of a trigger if it can be had without an error, or NULL.
 */
const FencePolicy *
fence_policy_cached(Relation relation, const Trigger *trigger)
{
	if (last_found == NULL || last_found->trigger != trigger->tgoid)
		last_found = hash_search(policies, &trigger->tgoid, HASH_FIND, NULL);
	return last_found != NULL &&
		last_found->relation == RelationGetRelid(relation) ?
		last_found->policy : NULL;
}

/*
 * The bound policy of a trigger, from the cache.  It may be used until the
 * end of the transaction.
 */
const FencePolicy *
fence_policy_of_trigger(Relation relation, const Trigger *trigger)
{
	const FencePolicy *cached = fence_policy_cached(relation, trigger);
	CachedPolicy *entry;
	MemoryContext cxt;
	MemoryContext oldcxt;
	FencePolicy *policy;

	if (cached != NULL)
		return cached;

	/* Below the transaction, until nothing can go wrong any more. */
	cxt = AllocSetContextCreate(TopTransactionContext, "pg_fence policy",
								ALLOCSET_SMALL_SIZES);
	oldcxt = MemoryContextSwitchTo(cxt);
	policy = fence_policy_of_arguments(relation, trigger->tgargs,
									   trigger->tgnargs);
	MemoryContextSwitchTo(oldcxt);

	entry = hash_search(policies, &trigger->tgoid, HASH_ENTER, NULL);
	entry->relation = RelationGetRelid(relation);
	entry->cxt = cxt;
	entry->policy = policy;
	MemoryContextSetParent(cxt, CacheMemoryContext);
	return policy;
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
	last_found = NULL;
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
