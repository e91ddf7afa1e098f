/*-------------------------------------------------------------------------
 *
 * key.h
 *	  Idempotency keys.
 *
 * IDENTIFICATION
 *	  src/key.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_KEY_H
#define FENCE_KEY_H

#include "fmgr.h"
#include "utils/uuid.h"

/* A key has 1 to this many bytes. */
#define FENCE_KEY_MAX	255

/* A scope has up to as many bytes as a resource, which may be one. */
#define FENCE_SCOPE_MAX 512

/* One operation. */
typedef struct FenceKey
{
	const char *scope;
	const char *key;
	pg_uuid_t	id;				/* stands for both in the index */
} FenceKey;

extern bool fence_key_is_blank(const char *key);
extern FenceKey fence_key(const char *scope, const char *key);
extern const char *fence_arg_scope(FunctionCallInfo fcinfo, int n);
extern FenceKey fence_datum_key(const char *scope, Datum datum, bool isnull);
extern FenceKey fence_arg_key(FunctionCallInfo fcinfo, int n_scope,
							  int n_key);

#endif							/* FENCE_KEY_H */
