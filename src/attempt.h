/*-------------------------------------------------------------------------
 *
 * attempt.h
 *	  Something that may fail without failing the transaction.
 *
 * IDENTIFICATION
 *	  src/attempt.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_ATTEMPT_H
#define FENCE_ATTEMPT_H

typedef bool (*FenceAction) (void *arg);

extern bool fence_attempt(FenceAction action, void *arg, int tolerated,
						  ErrorData **error);

#endif							/* FENCE_ATTEMPT_H */
