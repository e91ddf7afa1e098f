/*-------------------------------------------------------------------------
 *
 * prune.h
 *	  Removing claims that have expired.
 *
 * IDENTIFICATION
 *	  src/prune.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_PRUNE_H
#define FENCE_PRUNE_H

extern void fence_prune_init(void);
extern void fence_prune_later(void);

#endif							/* FENCE_PRUNE_H */
