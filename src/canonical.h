/*-------------------------------------------------------------------------
 *
 * canonical.h
 *	  Digest of a jsonb value.
 *
 * IDENTIFICATION
 *	  src/canonical.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_CANONICAL_H
#define FENCE_CANONICAL_H

#include "common/sha2.h"
#include "utils/jsonb.h"

/* To be raised whenever any value would get other bytes than before. */
#define FENCE_DIGEST_VERSION	1

/* the version, then SHA-256 in full */
#define FENCE_DIGEST_LENGTH		(1 + PG_SHA256_DIGEST_LENGTH)

extern const char *fence_canonical_text(const char *text, int *len);
extern void fence_canonical_digest(Jsonb *value,
								   uint8 digest[FENCE_DIGEST_LENGTH]);

#endif							/* FENCE_CANONICAL_H */
