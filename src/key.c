/*-------------------------------------------------------------------------
 *
 * key.c
 *	  Idempotency keys.
 *
 * An operation is named by scope and key, byte for byte.  In the index both
 * are represented by 128 bits, so that an entry has the same small size
 * whatever people use for keys.  These are the first bits of a SHA-256, except
 * for keys that are UUIDs of version 7: such an id begins with the time in
 * the key, 48 bits, and has 80 bits of the hash.  So keys that are made one
 * after the other are near each other in the index, and a page of it is
 * written once for many of them.
 *
 * Two operations with the same id are next to impossible, but a row also has
 * the full scope and key, and claim.c compares them.
 *
 * IDENTIFICATION
 *	  src/key.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "port/pg_bswap.h"

#include "args.h"
#include "canonical.h"
#include "digest.h"
#include "key.h"

/* Digits and bytes of the time in a UUID of version 7. */
#define UUID_LENGTH		36
#define UUID_TIME_BYTES	6

static const char *const blanks = " \t\n\r\f\v";

bool
fence_key_is_blank(const char *key)
{
	return key[strspn(key, blanks)] == '\0';
}

/* The value of a hexadecimal digit, -1 if it is none. */
static int
hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/*
 * If the key is a UUID of version 7, as text in one of its usual forms,
 * stores its first 48 bits.
 */
static bool
uuid7_time(const char *key, unsigned char *time)
{
	int			digits = 0;
	int			i;

	if (strlen(key) != UUID_LENGTH || key[14] != '7' ||
		strchr("89abAB", key[19]) == NULL)
		return false;
	for (i = 0; i < UUID_LENGTH; i++)
	{
		int			value = hex_value(key[i]);

		if (i == 8 || i == 13 || i == 18 || i == 23)
		{
			if (key[i] != '-')
				return false;
			continue;
		}
		if (value < 0)
			return false;
		if (digits < 2 * UUID_TIME_BYTES)
			time[digits / 2] = time[digits / 2] << 4 | value;
		digits++;
	}
	return true;
}

/*
 * SHA-256 of the length of the scope, the scope, and the key.  The id is
 * restored from dumps like a digest of a request, so it depends on the
 * encoding of the database no more than that does.
 */
static void
hash_key(const FenceKey *key, unsigned char hash[PG_SHA256_DIGEST_LENGTH])
{
	int			scope_len = strlen(key->scope);
	int			key_len = strlen(key->key);
	const char *scope_text = fence_canonical_text(key->scope, &scope_len);
	const char *key_text = fence_canonical_text(key->key, &key_len);
	uint32		len = pg_hton32(scope_len);

	fence_digest_begin(FENCE_SHA256);
	fence_digest_add(FENCE_SHA256, &len, sizeof(len));
	fence_digest_add(FENCE_SHA256, scope_text, scope_len);
	fence_digest_add(FENCE_SHA256, key_text, key_len);
	fence_digest_end(FENCE_SHA256, hash);
}

static pg_uuid_t
key_id(const FenceKey *key)
{
	unsigned char hash[PG_SHA256_DIGEST_LENGTH];
	pg_uuid_t	id;

	hash_key(key, hash);
	memcpy(id.data, hash, UUID_LEN);
	if (!uuid7_time(key->key, id.data))
		memcpy(id.data, hash, UUID_TIME_BYTES);
	return id;
}

/*
 * Makes a FenceKey of valid texts, which stay the caller's.
 *
 * The last one is remembered: a claim is mostly followed by its completion,
 * and many rows are written under one key.  To hash it once more would take
 * as long as to find it in the index.
 */
FenceKey
fence_key(const char *scope, const char *key)
{
	static char last_scope[FENCE_SCOPE_MAX + 1];
	static char last_key[FENCE_KEY_MAX + 1];
	static pg_uuid_t last_id;
	static bool valid = false;
	FenceKey	result;

	result.scope = scope;
	result.key = key;
	if (!valid || strcmp(key, last_key) != 0 || strcmp(scope, last_scope) != 0)
	{
		last_id = key_id(&result);
		/* a trigger made by hand can have a longer scope: not that one */
		valid = strlcpy(last_scope, scope,
						sizeof(last_scope)) < sizeof(last_scope) &&
			strlcpy(last_key, key, sizeof(last_key)) < sizeof(last_key);
	}
	result.id = last_id;
	return result;
}

/*
 * A scope may be empty, but not null.
 */
const char *
fence_arg_scope(FunctionCallInfo fcinfo, int n)
{
	fence_arg_not_null(fcinfo, n, "scope");
	return fence_datum_text(PG_GETARG_DATUM(n), "scope", 0, FENCE_SCOPE_MAX);
}

FenceKey
fence_datum_key(const char *scope, Datum datum, bool isnull)
{
	const char *key;

	if (isnull)
		fence_null_error("idempotency key");
	key = fence_datum_text(datum, "idempotency key", 1, FENCE_KEY_MAX);
	if (fence_key_is_blank(key))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("idempotency key must not be blank")));
	return fence_key(scope, key);
}

FenceKey
fence_arg_key(FunctionCallInfo fcinfo, int n_scope, int n_key)
{
	return fence_datum_key(fence_arg_scope(fcinfo, n_scope),
						   PG_GETARG_DATUM(n_key), PG_ARGISNULL(n_key));
}
