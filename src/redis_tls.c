/*-------------------------------------------------------------------------
 *
 * redis_tls.c
 *	  TLS for connections to Redis.
 *
 * hiredis has it from version 1.0 on, in a library of its own; the Makefile
 * looks for that and defines FENCE_HAVE_TLS.
 *
 * The certificate of the server must be signed by one in the file.  hiredis
 * does not compare the name in it with that of the host, so the file should
 * hold an authority that signs the certificates of these servers only.
 *
 * IDENTIFICATION
 *	  src/redis_tls.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <hiredis/hiredis.h>
#ifdef FENCE_HAVE_TLS
#include <hiredis/hiredis_ssl.h>
#endif

#include "redis_tls.h"

bool
fence_redis_tls_available(void)
{
#ifdef FENCE_HAVE_TLS
	return true;
#else
	return false;
#endif
}

/*
 * Makes the connection an encrypted one; the handshake goes on with the
 * first reads and writes.  Returns why it cannot, NULL if it can.
 */
const char *
fence_redis_tls_start(redisContext *context, const char *ca_file,
					  const char *host)
{
#ifdef FENCE_HAVE_TLS
	redisSSLContextError error = REDIS_SSL_CTX_NONE;
	redisSSLContext *tls;
	int			result;

	tls = redisCreateSSLContext(ca_file, NULL, NULL, NULL, host, &error);
	if (tls == NULL)
		return redisSSLContextGetError(error);
	result = redisInitiateSSLWithContext(context, tls);
	/* the connection keeps what it needs of it */
	redisFreeSSLContext(tls);
	return result == REDIS_OK ? NULL : context->errstr;
#else
	return "TLS is not supported by this build";
#endif
}
