/*-------------------------------------------------------------------------
 *
 * redis_tls.c
 *	  TLS for connections to Redis.
 *
 * hiredis has it from version 1.0 on, in a library of its own; the Makefile
 * looks for that and for OpenSSL, and defines FENCE_HAVE_TLS.
 *
 * The certificate of the server must be signed by one in the file, and must
 * be for the host that the connection goes to: else whoever has another one
 * of the same authority could stand in between, and vouch for any lease.
 * hiredis would check the first only, so the session of OpenSSL is made here
 * and handed to it.
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
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
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

#ifdef FENCE_HAVE_TLS

/*
 * Whose certificate it must be.  An address is no name: it stands in another
 * field, and is not announced to the server.
 */
static bool
demand_host(SSL *tls, const char *host)
{
	if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host) == 1)
		return true;
	SSL_set_hostflags(tls, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(tls, host) == 1 &&
		SSL_set_tlsext_host_name(tls, host) == 1;
}

/* A session that accepts nobody else; NULL, and why, if there can be none. */
static SSL *
new_session(const char *ca_file, const char *host, const char **problem)
{
	SSL_CTX    *settings = SSL_CTX_new(TLS_client_method());
	SSL		   *tls = NULL;

	*problem = "out of memory";
	if (settings == NULL)
		return NULL;
	SSL_CTX_set_verify(settings, SSL_VERIFY_PEER, NULL);
	if (SSL_CTX_set_min_proto_version(settings, TLS1_2_VERSION) != 1 ||
		SSL_CTX_load_verify_locations(settings, ca_file, NULL) != 1)
		*problem = "no certificates could be read from ca_file";
	else
		tls = SSL_new(settings);
	/* the session keeps what it needs of them */
	SSL_CTX_free(settings);
	if (tls != NULL && !demand_host(tls, host))
	{
		*problem = "no certificate can be for this host";
		SSL_free(tls);
		return NULL;
	}
	return tls;
}

static void
free_session(void *tls)
{
	SSL_free(tls);
}

#endif							/* FENCE_HAVE_TLS */

/*
 * Makes the connection an encrypted one; the handshake goes on with the
 * first reads and writes.  Returns why it cannot, NULL if it can, or if the
 * error is recorded in the context as that of any read or write would be.
 */
const char *
fence_redis_tls_start(redisContext *context, const char *ca_file,
					  const char *host)
{
#ifdef FENCE_HAVE_TLS
	const char *problem;
	SSL		   *tls = new_session(ca_file, host, &problem);

	ERR_clear_error();
	if (tls == NULL)
		return problem;
	/* ours, because hiredis does not give back what it gets */
	context->privdata = tls;
	context->free_privdata = free_session;
	SSL_up_ref(tls);
	errno = 0;
	if (redisInitiateSSL(context, tls) != REDIS_OK)
		SSL_free(tls);			/* that reference */
	return NULL;
#else
	return "TLS is not supported by this build";
#endif
}

/*
 * To be called before each read and write.  hiredis takes an error of OpenSSL
 * that somebody else in this backend has left behind for one of its own.
 */
void
fence_redis_tls_forget_errors(void)
{
#ifdef FENCE_HAVE_TLS
	ERR_clear_error();
#endif
}

/*
 * Why the server's certificate was not accepted; NULL if that was not what
 * ended the connection.
 */
const char *
fence_redis_tls_objection(const redisContext *context)
{
#ifdef FENCE_HAVE_TLS
	if (context->privdata != NULL)
	{
		long		result = SSL_get_verify_result(context->privdata);

		/* nor is anybody else to take ours for his */
		fence_redis_tls_forget_errors();
		if (result != X509_V_OK)
			return X509_verify_cert_error_string(result);
	}
#endif
	return NULL;
}
