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

#include "fmgr.h"

extern void fence_constraint_init(void);
extern void fence_prevent_in_constraint(const FmgrInfo *flinfo);

#endif							/* FENCE_CONSTRAINT_H */
