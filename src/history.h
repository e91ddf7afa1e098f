/*-------------------------------------------------------------------------
 *
 * history.h
 *	  Leases that have ended.
 *
 * IDENTIFICATION
 *	  src/history.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_HISTORY_H
#define FENCE_HISTORY_H

#include "resource.h"
#include "stats.h"

extern void fence_history_init(void);
extern void fence_history_add(const FenceName *name, const FenceRow *row,
							  FenceLeaseEnd end, TimestampTz ended_at);

#endif							/* FENCE_HISTORY_H */
