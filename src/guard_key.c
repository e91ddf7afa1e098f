/*-------------------------------------------------------------------------
 *
 * guard_key.c
 *	  Idempotency keys in a column of a protected table.
 *
 * An INSERT, or an UPDATE that sets the key column, claims the key that it
 * puts there, once per statement: all rows that the statement writes under a
 * key belong to one operation.  A later statement with that key is a
 * duplicate.
 *
 * BEFORE ROW claims, because only there a duplicate can be skipped.  But not
 * every row that gets there is written: ON CONFLICT DO NOTHING finds another
 * one, or a trigger drops it.  So the claim remains "unwritten" until AFTER
 * ROW, and if it still is at the end of the transaction, it goes away again.
 *
 * One row may come by more than once, and is one operation all the same:
 *
 *	INSERT ... ON CONFLICT DO UPDATE	BEFORE INSERT, then BEFORE UPDATE
 *	UPDATE to another partition			BEFORE UPDATE, BEFORE DELETE, then
 *										BEFORE INSERT there
 *
 * The latter may carry an old key along, which is not claimed again.
 *
 * IDENTIFICATION
 *	  src/guard_key.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_trigger.h"
#include "miscadmin.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/rel.h"

#include "claim.h"
#include "errors.h"
#include "execution.h"
#include "guard_key.h"
#include "merge.h"
#include "row_name.h"

/* The row as it is to be, or was, written. */
static TupleTableSlot *
new_slot(const FenceKeyedRow *row)
{
	return TRIGGER_FIRED_BY_UPDATE(row->trigdata->tg_event) ?
		row->trigdata->tg_newslot : row->trigdata->tg_trigslot;
}

/* Has an UPDATE, or another trigger, changed the key column? */
static bool
is_changed(const FenceKeyedRow *row)
{
	AttrNumber	attnum = row->policy->key.attnum;
	TupleDesc	desc = RelationGetDescr(row->trigdata->tg_relation);
	Form_pg_attribute column = TupleDescAttr(desc, attnum - 1);
	bool		old_null;
	bool		new_null;
	Datum		old = slot_getattr(row->trigdata->tg_trigslot, attnum,
								   &old_null);
	Datum		new = slot_getattr(row->trigdata->tg_newslot, attnum,
								   &new_null);

	if (old_null || new_null)
		return old_null != new_null;
	return !datum_image_eq(old, new, column->attbyval, column->attlen);
}

/* Is a key set, be it the one that is there? */
static bool
sets_key(const FenceKeyedRow *row)
{
	return TRIGGER_FIRED_BY_INSERT(row->trigdata->tg_event) ||
		bms_is_member(row->policy->key.attnum -
					  FirstLowInvalidHeapAttributeNumber,
					  row->trigdata->tg_updatedcols) ||
		is_changed(row);
}

/* Is the statement run by a trigger of another one? */
static bool
is_nested(void)
{
	return DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0)) > 1;
}

/*
 * May the row be left alone if its key is a duplicate?
 *
 * Not in what a foreign key or a trigger does for a statement: that must not
 * be done by half.  Not by a guard that only observes.  Nor a row whose key
 * may not be set at all: in a MERGE with several actions, the set of updated
 * columns is that of all of them together.
 */
static bool
may_skip(const FenceKeyedRow *row)
{
	if (!row->policy->skip_duplicates || row->policy->observe ||
		InNoForceRLSOperation() || is_nested())
		return false;
	return !TRIGGER_FIRED_BY_UPDATE(row->trigdata->tg_event) ||
		is_changed(row) ||
		fence_sets_column(row->flinfo, row->trigdata->tg_relation,
						  row->policy->key.attnum);
}

static const FenceVerdict *
row_key(const FenceKeyedRow *row, TupleTableSlot *slot, FenceKey *key)
{
	const FenceVerdict *verdict;
	StringInfoData text;

	initStringInfo(&text);
	verdict = fence_row_key(row->policy, row->trigdata->tg_relation, slot,
							&text);
	if (verdict == NULL)
		*key = fence_key(row->policy->key_scope, text.data);
	return verdict;
}

static const FenceVerdict *
duplicate(const FenceKeyedRow *row, const FenceKey *key,
		  TimestampTz claimed_at)
{
	return fence_verdict(ERRCODE_FENCE_DUPLICATE_KEY,
						 psprintf("duplicate idempotency key \"%s\" in column \"%s\" of table \"%s\"",
								  key->key, row->policy->key_column,
								  RelationGetRelationName(row->trigdata->tg_relation)),
						 psprintf("It was claimed at %s.",
								  timestamptz_to_str(claimed_at)),
						 "The operation has been done already. A new one needs a new key.");
}

/*
 * Claims the key for the statement.  *skip is set if it is a duplicate that
 * may be skipped; without skip, none may.  What fence.claim() was called for in
 * the scope of the table, with a request or without an end, is no duplicate.
 */
static const FenceVerdict *
claim_key(const FenceKeyedRow *row, const FenceKey *key, bool *skip)
{
	FenceClaimRequest request = {0};
	FenceClaimResult result;
	const FenceClaim *own = fence_claimed(key);
	const FenceVerdict *verdict;

	request.retain = FENCE_RETAIN_DEFAULT;
	request.state = FENCE_CLAIM_UNWRITTEN;
	request.statement = fence_statement(row->flinfo);
	if (own != NULL && fence_same_statement(&own->statement,
											&request.statement))
		return NULL;
	verdict = fence_claim(key, &request, &result);
	if (verdict != NULL || result.fresh)
		return verdict;
	if (skip == NULL || !may_skip(row))
		return duplicate(row, key, result.claimed_at);
	*skip = true;
	return NULL;
}

/* Keeps the key that a row takes along if it moves to another partition. */
static void
remember_moving_key(const FenceKeyedRow *row, FenceExecution *execution)
{
	TupleTableSlot *slot = new_slot(row);

	execution->moved_null = slot_attisnull(slot, row->policy->key.attnum);
	(void) fence_row_key(row->policy, row->trigdata->tg_relation, slot,
						 &execution->moved_key);
}

/* Is the row that is inserted the one that has just left its partition? */
static bool
is_arriving(const FenceKeyedRow *row, FenceExecution *execution)
{
	TupleTableSlot *slot = new_slot(row);
	StringInfoData text;

	if (!execution->moving)
		return false;
	execution->moving = false;
	initStringInfo(&text);
	(void) fence_row_key(row->policy, row->trigdata->tg_relation, slot,
						 &text);
	return slot_attisnull(slot, row->policy->key.attnum) ==
		execution->moved_null &&
		strcmp(text.data, execution->moved_key.data) == 0;
}

static const FenceVerdict *
before_insert(const FenceKeyedRow *row, FenceExecution *execution, bool *skip)
{
	const FenceVerdict *verdict;
	FenceKey	key;

	execution->inserting = false;
	if (is_arriving(row, execution))
		return NULL;
	verdict = row_key(row, new_slot(row), &key);
	if (verdict == NULL)
		verdict = claim_key(row, &key, skip);
	if (verdict == NULL && !*skip)
	{
		execution->inserting = true;
		resetStringInfo(&execution->inserted_key);
		appendStringInfoString(&execution->inserted_key, key.key);
	}
	return verdict;
}

/*
 * An UPDATE right after BEFORE INSERT of the same statement is that of ON
 * CONFLICT DO UPDATE.  Whether it sets the key column or not, it is the work
 * that the statement does under the key of the row that it wanted to insert.
 */
static const FenceVerdict *
before_update(const FenceKeyedRow *row, FenceExecution *execution, bool *skip)
{
	const FenceVerdict *verdict = NULL;
	bool		upsert = execution->inserting;
	FenceKey	key;

	execution->inserting = execution->moving = false;
	if (row->trigdata->tg_relation->rd_rel->relispartition)
		remember_moving_key(row, execution);
	if (sets_key(row))
	{
		verdict = row_key(row, new_slot(row), &key);
		if (verdict == NULL)
			verdict = claim_key(row, &key, skip);
	}
	if (upsert && verdict == NULL && !*skip)
	{
		key = fence_key(row->policy->key_scope, execution->inserted_key.data);
		(void) fence_claim_written(&key);
	}
	return verdict;
}

/*
 * BEFORE ROW, INSERT or UPDATE.  Returns a verdict if the row has no key, or
 * one that is not free; sets *skip if it is to be left alone.
 */
const FenceVerdict *
fence_key_before_write(const FenceKeyedRow *row, bool *skip)
{
	FenceExecution *execution = fence_execution(row->flinfo);

	return TRIGGER_FIRED_BY_INSERT(row->trigdata->tg_event) ?
		before_insert(row, execution, skip) :
		before_update(row, execution, skip);
}

/*
 * BEFORE ROW, DELETE: is it an UPDATE that moves the row to another partition?
 */
void
fence_key_before_delete(const FenceKeyedRow *row, bool moved)
{
	FenceExecution *execution = fence_execution(row->flinfo);

	execution->inserting = false;
	execution->moving = moved;
}

/*
 * Can another BEFORE trigger have changed the row after our own, or dropped
 * it?
 */
bool
fence_has_later_trigger(const TriggerData *trigdata)
{
	const TriggerDesc *triggers = trigdata->tg_relation->trigdesc;
	bool		after_ours = false;
	int			i;

	/* they are in the order in which they fire */
	for (i = 0; i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (!TRIGGER_FOR_ROW(trigger->tgtype) ||
			!TRIGGER_FOR_BEFORE(trigger->tgtype))
			continue;
		if (trigger->tgfoid == trigdata->tg_trigger->tgfoid)
			after_ours = true;
		else if (after_ours)
			return true;
	}
	return false;
}

/*
 * AFTER ROW, INSERT or UPDATE: something has happened under the key.
 *
 * If a later trigger may have replaced the key, the one that was written
 * counts, and it is too late to skip the row.  Otherwise a key that is not
 * waiting for that has had it already, or came along from another partition.
 */
const FenceVerdict *
fence_key_after_write(const FenceKeyedRow *row)
{
	const FenceVerdict *verdict;
	FenceKey	key;

	if (!sets_key(row))
		return NULL;
	verdict = row_key(row, new_slot(row), &key);
	if (verdict == NULL && fence_claim_written(&key))
		return NULL;
	if (!fence_has_later_trigger(row->trigdata))
		return NULL;
	if (verdict == NULL)
	{
		verdict = claim_key(row, &key, NULL);
		(void) fence_claim_written(&key);
	}
	return verdict;
}
