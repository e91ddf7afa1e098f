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

/* Instead of an SQLSTATE: all of them are tolerated, but not a cancel. */
#define FENCE_ANY_ERROR		(-1)

typedef bool (*FenceAction) (void *arg);

extern bool fence_attempt(FenceAction action, void *arg, int tolerated,
						  ErrorData **error);

#endif							/* FENCE_ATTEMPT_H */
