/*-------------------------------------------------------------------------
 *
 * lease_end.h
 *	  What leases leave behind.
 *
 * IDENTIFICATION
 *	  src/lease_end.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_LEASE_END_H
#define FENCE_LEASE_END_H

#include "resource.h"
#include "stats.h"

extern void fence_lease_granted(const FenceName *name, FenceRow *row,
								const char *holder, TimestampTz now);
extern void fence_lease_ended(const FenceName *name, FenceRow *row,
							  FenceLeaseEnd end, TimestampTz now);

#endif							/* FENCE_LEASE_END_H */
