/*-------------------------------------------------------------------------
 *
 * guard_key.h
 *	  Idempotency keys in a column of a protected table.
 *
 * IDENTIFICATION
 *	  src/guard_key.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_GUARD_KEY_H
#define FENCE_GUARD_KEY_H

#include "policy.h"

/* One call of a row trigger of a guard with a key column. */
typedef struct FenceKeyedRow
{
	const FencePolicy *policy;
	TriggerData *trigdata;
	const FmgrInfo *flinfo;
} FenceKeyedRow;

extern const FenceVerdict *fence_key_before_write(const FenceKeyedRow *row,
												  bool *skip);
extern void fence_key_before_delete(const FenceKeyedRow *row, bool moved);
extern const FenceVerdict *fence_key_after_write(const FenceKeyedRow *row);
extern bool fence_has_later_trigger(const TriggerData *trigdata);

#endif							/* FENCE_GUARD_KEY_H */
