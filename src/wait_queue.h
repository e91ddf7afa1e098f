/*-------------------------------------------------------------------------
 *
 * wait_queue.h
 *	  Who waits for a lease, in the order of arrival.
 *
 * IDENTIFICATION
 *	  src/wait_queue.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_WAIT_QUEUE_H
#define FENCE_WAIT_QUEUE_H

#include "resource.h"
#include "shmem.h"

extern void fence_wait_queue_start(void);
extern Size fence_wait_queue_size(const FenceLimits *limits);
extern void fence_wait_queue_init(void *part, const FenceLimits *limits,
								  int tranche);

extern bool fence_wait_turn(const FenceName *name);
extern bool fence_wait_join(const FenceName *name);
extern void fence_wait_leave(void);
extern void fence_wait_wake_at_end(const FenceName *name);

#endif							/* FENCE_WAIT_QUEUE_H */
