/*-------------------------------------------------------------------------
 *
 * digest.c
 *	  SHA-256, and SHA-1 where Redis wants it.
 *
 * A digest is begun, given its pieces, and ended.  One of each kind can be
 * under way; where an error has cut one short, the next begins anew.
 *
 * This is what the server's own pg_cryptohash functions do, but those make a
 * context for each digest, which has OpenSSL look up the algorithm each time:
 * for a short text that takes longer than its digest.  Here a backend keeps
 * the contexts.
 *
 * IDENTIFICATION
 *	  src/digest.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include "digest.h"

static const char *const names[] = {
	[FENCE_SHA1] = "SHA-1",
	[FENCE_SHA256] = "SHA-256"
};

/* NULL until the first use (backend). */
static EVP_MD_CTX *contexts[lengthof(names)];

static void
digest_error(FenceDigest digest)
{
	const char *reason = ERR_reason_error_string(ERR_get_error());

	/* What else is in the queue must not be taken for a later error. */
	ERR_clear_error();
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("could not compute %s: %s", names[digest],
					reason != NULL ? reason : "unknown error")));
}

static void
make_context(FenceDigest digest)
{
	EVP_MD_CTX *context = EVP_MD_CTX_new();

	if (context == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory")));
	if (!EVP_DigestInit_ex(context, digest == FENCE_SHA1 ?
						   EVP_sha1() : EVP_sha256(), NULL))
	{
		EVP_MD_CTX_free(context);
		digest_error(digest);
	}
	contexts[digest] = context;
}

void
fence_digest_begin(FenceDigest digest)
{
	if (contexts[digest] == NULL)
		make_context(digest);
	else if (!EVP_DigestInit_ex(contexts[digest], NULL, NULL))
		digest_error(digest);
}

void
fence_digest_add(FenceDigest digest, const void *bytes, size_t len)
{
	if (!EVP_DigestUpdate(contexts[digest], bytes, len))
		digest_error(digest);
}

void
fence_digest_end(FenceDigest digest, uint8 *result)
{
	if (!EVP_DigestFinal_ex(contexts[digest], result, NULL))
		digest_error(digest);
}
