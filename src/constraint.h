/*-------------------------------------------------------------------------
 *
 * constraint.h
 *	  Is a function called by a CHECK constraint?
 *
 * IDENTIFICATION
 *	  src/constraint.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_CONSTRAINT_H
#define FENCE_CONSTRAINT_H

#include "fmgr.h"

extern void fence_prevent_in_constraint(const FmgrInfo *flinfo);

#endif							/* FENCE_CONSTRAINT_H */
