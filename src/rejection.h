/*-------------------------------------------------------------------------
 *
 * rejection.h
 *	  The last refused writes.
 *
 * IDENTIFICATION
 *	  src/rejection.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_REJECTION_H
#define FENCE_REJECTION_H

#include "shmem.h"
#include "verdict.h"

extern Size fence_rejections_size(const FenceLimits *limits);
extern void fence_rejections_init(void *part, const FenceLimits *limits,
								  int tranche);
extern void fence_rejections_reset(void);
extern void fence_rejection(const FenceVerdict *verdict, const FenceSite *site,
							bool observed);

#endif							/* FENCE_REJECTION_H */
