/*-------------------------------------------------------------------------
 *
 * fast_update.h
 *	  A cheaper way to call the guard of a table that is updated.
 *
 * IDENTIFICATION
 *	  src/fast_update.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_FAST_UPDATE_H
#define FENCE_FAST_UPDATE_H

extern void fence_fast_update_init(void);

#endif							/* FENCE_FAST_UPDATE_H */
