/*-------------------------------------------------------------------------
 *
 * constraint.h
 *	  Keeps our functions out of CHECK constraints.
 *
 * IDENTIFICATION
 *	  src/constraint.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_CONSTRAINT_H
#define FENCE_CONSTRAINT_H

extern void fence_constraint_init(void);

#endif							/* FENCE_CONSTRAINT_H */
