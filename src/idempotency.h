/*-------------------------------------------------------------------------
 *
 * idempotency.h
 *	  SQL functions for idempotency keys.
 *
 * IDENTIFICATION
 *	  src/idempotency.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_IDEMPOTENCY_H
#define FENCE_IDEMPOTENCY_H

extern void fence_idempotency_init(void);

#endif							/* FENCE_IDEMPOTENCY_H */
