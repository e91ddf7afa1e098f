/*-------------------------------------------------------------------------
 *
 * digest.h
 *	  SHA-256, and SHA-1 where Redis wants it.
 *
 * IDENTIFICATION
 *	  src/digest.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_DIGEST_H
#define FENCE_DIGEST_H

#include "common/sha1.h"
#include "common/sha2.h"

typedef enum FenceDigest
{
	FENCE_SHA1,					/* SHA1_DIGEST_LENGTH bytes */
	FENCE_SHA256				/* PG_SHA256_DIGEST_LENGTH bytes */
} FenceDigest;

extern void fence_digest_begin(FenceDigest digest);
extern void fence_digest_add(FenceDigest digest, const void *bytes,
							 size_t len);
extern void fence_digest_end(FenceDigest digest, uint8 *result);

#endif							/* FENCE_DIGEST_H */
