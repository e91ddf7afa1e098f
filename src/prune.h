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

#include "unique.h"
#include "utils/timestamp.h"

extern void fence_prune_a_little(FenceUnique *claims, TimestampTz now);

#endif							/* FENCE_PRUNE_H */
