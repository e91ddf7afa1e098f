/*-------------------------------------------------------------------------
 *
 * row_name.c
 *	  What a row belongs to: the name of its resource, and its key.
 *
 * Both are made of the row's columns.  Names are kept from row to row of a
 * bulk write: a row with the same values has the same name.  It is written
 * when somebody asks for it, or, where it could be too long or empty, at once.
 *
 * IDENTIFICATION
 *	  src/row_name.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "errors.h"
#include "key.h"
#include "row_name.h"

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
append_integer(StringInfo name, int64 value)
{
	enlargeStringInfo(name, MAXINT8LEN + 1);
	name->len += pg_lltoa(value, name->data + name->len);
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
		case TEXTOID:
		case VARCHAROID:
			{
				text	   *plain = DatumGetTextPP(value);

				appendBinaryStringInfo(name, VARDATA_ANY(plain),
									   VARSIZE_ANY_EXHDR(plain));
				break;
			}
		case INT2OID:
			append_integer(name, DatumGetInt16(value));
			break;
		case INT4OID:
			append_integer(name, DatumGetInt32(value));
			break;
		case INT8OID:
			append_integer(name, DatumGetInt64(value));
			break;
		case BOOLOID:
		case CHAROID:
		case NAMEOID:
		case NUMERICOID:
		case OIDOID:
		case UUIDOID:
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
 * A name that is still to be set.  It gets an array of zeroes, one per part
 * of the template.
 */
void
fence_row_name_init(FenceRowName *name, const FencePolicy *policy,
					MemoryContext cxt, Datum *values)
{
	name->policy = policy;
	name->cxt = cxt;
	name->values = values;
	name->known = false;
	name->written = false;
	name->text.data = NULL;
}

/*
 * As they are stored: what is equal otherwise may be written differently.
 */
static bool
same_value(const FenceColumn *column, Datum a, Datum b)
{
	return column->typbyval ? a == b :
		datumIsEqual(a, b, false, column->typlen);
}

static void
keep_value(FenceRowName *name, int part, Datum value)
{
	const FenceColumn *column = &name->policy->columns[part];
	Datum	   *kept = &name->values[part];
	MemoryContext oldcxt;

	if (column->typbyval)
	{
		*kept = value;
		return;
	}
	if (DatumGetPointer(*kept) != NULL)
		pfree(DatumGetPointer(*kept));
	*kept = (Datum) 0;
	oldcxt = MemoryContextSwitchTo(name->cxt);
	*kept = datumCopy(value, false, column->typlen);
	MemoryContextSwitchTo(oldcxt);
}

static void
write_name(FenceRowName *name)
{
	const FencePolicy *policy = name->policy;
	MemoryContext oldcxt;
	int			i;

	if (name->text.data == NULL)
	{
		oldcxt = MemoryContextSwitchTo(name->cxt);
		initStringInfo(&name->text);
		MemoryContextSwitchTo(oldcxt);
	}
	resetStringInfo(&name->text);
	for (i = 0; i < policy->nparts; i++)
	{
		const FenceTemplatePart *part = &policy->parts[i];

		if (part->is_column)
			append_column(&policy->columns[i], name->values[i], &name->text);
		else
			appendBinaryStringInfo(&name->text, part->text, part->len);
	}
	name->written = true;
}

/*
 * Sets the name to that of the row's resource; returns a verdict, 22004 or
 * 22023, if the row has none, and sets *attnum to the column that is to blame.
 * A slot is needed only if the template has columns.
 */
const FenceVerdict *
fence_row_name_set(FenceRowName *name, Relation relation,
				   TupleTableSlot *slot, AttrNumber *attnum)
{
	const FencePolicy *policy = name->policy;
	bool		same = name->known;
	int			i;

	name->known = false;
	for (i = 0; i < policy->nparts; i++)
	{
		const FenceColumn *column = &policy->columns[i];
		bool		isnull;
		Datum		value;

		if (!policy->parts[i].is_column)
			continue;
		value = slot_getattr(slot, column->attnum, &isnull);
		if (isnull)
		{
			*attnum = column->attnum;
			return null_column(policy->parts[i].text, relation);
		}
		if (same && same_value(column, value, name->values[i]))
			continue;
		same = false;
		keep_value(name, i, value);
	}
	if (!same)
	{
		name->written = false;
		if (!policy->always_fits)
		{
			write_name(name);
			if (name->text.len == 0 || name->text.len > FENCE_RESOURCE_MAX)
				return bad_length(&name->text, relation);
		}
	}
	name->known = true;
	return NULL;
}

/*
 * Is the name, which has been set, surely that of this row, too?
 */
bool
fence_row_name_fits(const FenceRowName *name, TupleTableSlot *slot)
{
	const FencePolicy *policy = name->policy;
	int			i;

	for (i = 0; i < policy->nparts; i++)
	{
		const FenceColumn *column = &policy->columns[i];
		bool		isnull;
		Datum		value;

		if (!policy->parts[i].is_column)
			continue;
		value = slot_getattr(slot, column->attnum, &isnull);
		if (isnull || !same_value(column, value, name->values[i]))
			return false;
	}
	return true;
}

/*
 * The name, which has been set.
 */
const StringInfoData *
fence_row_name_text(FenceRowName *name)
{
	if (!name->written)
		write_name(name);
	return &name->text;
}

static const FenceVerdict *
null_key(const FencePolicy *policy, Relation relation)
{
	return fence_verdict(ERRCODE_NULL_VALUE_NOT_ALLOWED,
						 psprintf("null value in column \"%s\", which holds the idempotency keys of table \"%s\"",
								  policy->key_column,
								  RelationGetRelationName(relation)),
						 "An operation without a key cannot be told from a repeated one.",
						 "Set the column to a key that stays the same when the operation is repeated.");
}

static const FenceVerdict *
bad_key(const FencePolicy *policy, Relation relation,
		const StringInfoData *key)
{
	return fence_verdict(ERRCODE_INVALID_PARAMETER_VALUE,
						 key->len > FENCE_KEY_MAX ?
						 "idempotency key is too long" :
						 "idempotency key must not be blank",
						 psprintf("\"%.*s\" in column \"%s\" of table \"%s\" has %d bytes, 1 to %d are possible.",
								  pg_mbcliplen(key->data, key->len, 64),
								  key->data, policy->key_column,
								  RelationGetRelationName(relation),
								  key->len, FENCE_KEY_MAX),
						 "Set the column to a key that stays the same when the operation is repeated.");
}

/*
 * Writes the row's idempotency key; returns a verdict, 22004 or 22023, if it
 * has none.
 */
const FenceVerdict *
fence_row_key(const FencePolicy *policy, Relation relation,
			  TupleTableSlot *slot, StringInfo key)
{
	bool		isnull;
	Datum		value = slot_getattr(slot, policy->key.attnum, &isnull);

	resetStringInfo(key);
	if (isnull)
		return null_key(policy, relation);
	append_column(unconstify(FenceColumn *, &policy->key), value, key);
	if (key->len > FENCE_KEY_MAX || fence_key_is_blank(key->data))
		return bad_key(policy, relation, key);
	return NULL;
}
