/*-------------------------------------------------------------------------
 *
 * merge.h
 *	  Is a trigger fired by a MERGE?
 *
 * IDENTIFICATION
 *	  src/merge.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_MERGE_H
#define FENCE_MERGE_H

#include "access/attnum.h"
#include "fmgr.h"
#include "utils/relcache.h"

extern void fence_merge_init(void);
extern bool fence_in_merge(const FmgrInfo *trigger, Relation relation);
extern bool fence_sets_column(const FmgrInfo *trigger, Relation relation,
							  AttrNumber attnum);

#endif							/* FENCE_MERGE_H */
