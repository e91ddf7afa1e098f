/*-------------------------------------------------------------------------
 *
 * guard.h
 *	  The trigger function on protected tables.
 *
 * IDENTIFICATION
 *	  src/guard.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_GUARD_H
#define FENCE_GUARD_H

extern void fence_guard_init(void);

#endif							/* FENCE_GUARD_H */
