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

/* The name of a row's resource, kept from row to row. */
typedef struct FenceRowName
{
	const FencePolicy *policy;
	MemoryContext cxt;			/* holds the rest */
	Datum	   *values;			/* of the columns, one per part */
	bool		known;			/* are they those of a row? */
	bool		written;		/* is the text made of them? */
	StringInfoData text;
} FenceRowName;

extern void fence_row_name_init(FenceRowName *name,
								const FencePolicy *policy,
								MemoryContext cxt, Datum *values);
extern const FenceVerdict *fence_row_name_set(FenceRowName *name,
											  Relation relation,
											  TupleTableSlot *slot,
											  AttrNumber *attnum);
extern bool fence_row_name_fits(const FenceRowName *name,
								TupleTableSlot *slot);
extern const StringInfoData *fence_row_name_text(FenceRowName *name);
extern const FenceVerdict *fence_row_key(const FencePolicy *policy,
										 Relation relation,
										 TupleTableSlot *slot,
										 StringInfo key);

#endif							/* FENCE_ROW_NAME_H */
