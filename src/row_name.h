/*-------------------------------------------------------------------------
 *
 * row_name.h
 *	  What a row belongs to: the name of its resource, and its key.
 *
 * IDENTIFICATION
 *	  src/row_name.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_ROW_NAME_H
#define FENCE_ROW_NAME_H

#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "policy.h"

/* The resource of a row, kept from row to row. */
typedef struct FenceRowName
{
	StringInfoData text;
	bool		known;			/* is it that of these values? */
	Datum	   *values;			/* of the columns, one per part */
} FenceRowName;

extern void fence_row_name_init(FenceRowName *name,
								const FencePolicy *policy);
extern const FenceVerdict *fence_row_name(const FencePolicy *policy,
										  Relation relation,
										  TupleTableSlot *slot,
										  FenceRowName *name,
										  AttrNumber *attnum);
extern bool fence_row_name_same(const FencePolicy *policy,
								TupleTableSlot *a, TupleTableSlot *b);
extern const FenceVerdict *fence_row_key(const FencePolicy *policy,
										 Relation relation,
										 TupleTableSlot *slot,
										 StringInfo key);

#endif							/* FENCE_ROW_NAME_H */
