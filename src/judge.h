/*-------------------------------------------------------------------------
 *
 * judge.h
 *	  What speaks against a token, by the row of its resource.
 *
 * IDENTIFICATION
 *	  src/judge.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_JUDGE_H
#define FENCE_JUDGE_H

#include "resource.h"
#include "verdict.h"

extern const FenceVerdict *fence_stale(const FenceName *name, int64 token,
									   const FenceRow *row);
extern const FenceVerdict *fence_superseded(const FenceName *name,
											int64 token, int64 before);
extern const FenceVerdict *fence_overtaken(const FenceName *name,
										   int64 token);
extern const FenceVerdict *fence_row_missing(const FenceName *name,
											 int64 token);
extern const FenceVerdict *fence_table_missing(const FenceName *name,
											   int64 token);
extern const FenceVerdict *fence_never_issued(const FenceName *name,
											  int64 token,
											  const FenceRow *row);
extern const FenceVerdict *fence_not_held(const FenceName *name, int64 token,
										  const FenceRow *row);

extern const FenceVerdict *fence_judge_holder(const FenceName *name,
											  int64 token,
											  const char *holder,
											  const char *recorded);
extern const FenceVerdict *fence_judge_lease(const FenceName *name,
											 int64 token,
											 const FenceRow *row);

#endif							/* FENCE_JUDGE_H */
