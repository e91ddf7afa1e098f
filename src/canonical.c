/*-------------------------------------------------------------------------
 *
 * canonical.c
 *	  Digest of a jsonb value.
 *
 * Two values have the same digest if and only if jsonb's = finds them equal;
 * jsonb::text would tell 1 from 1.0.  Digests are stored, compared with those
 * of later calls, and restored from dumps.  Therefore they depend on nothing
 * but the value: not on the version of the server, the platform or the
 * locale.
 *
 * Nor on the encoding, where that can be had: text in a single-byte encoding
 * is hashed in UTF-8, so that a dump of a LATIN1 database that is restored
 * into a UTF-8 one keeps its digests.  In SQL_ASCII nobody knows what the
 * bytes mean, and multi-byte encodings have characters in two spellings that
 * UTF-8 does not tell apart (EUC_JP, EUC_TW), or no way to it at all
 * (MULE_INTERNAL).  There the bytes are hashed as they are; moving such a
 * database to another encoding makes repeated requests look different.  They
 * are refused then; a different request is never taken for a repeated one.
 *
 * jsonb itself has removed duplicate keys and sorted the others by length and
 * then by bytes.  That order is part of its storage format.
 *
 * IDENTIFICATION
 *	  src/canonical.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/numeric.h"

#include "canonical.h"
#include "canonical_form.h"
#include "digest.h"

/*
 * Are the strings in an encoding that has a one-to-one conversion to UTF-8?
 */
static bool
needs_conversion(void)
{
	return pg_database_encoding_max_length() == 1 &&
		GetDatabaseEncoding() != PG_SQL_ASCII;
}

/*
 * The text as it is hashed, *len bytes before and after; it may be the very
 * same.  Raises 22P05 if it has no equivalent in UTF-8: WIN1252, for example,
 * leaves some bytes undefined.
 */
const char *
fence_canonical_text(const char *text, int *len)
{
	const char *converted = text;

	if (needs_conversion())
		converted = pg_server_to_any(text, *len, PG_UTF8);
	if (converted != text)
		*len = strlen(converted);
	return converted;
}

/*
 * A copy with all strings in UTF-8.
 *
 * It is only good for being walked over.  It is built like any new value,
 * because with their lengths the order of the keys changes.
 */
static Jsonb *
copy_in_utf8(Jsonb *value)
{
	JsonbIterator *it = JsonbIteratorInit(&value->root);
	JsonbParseState *state = NULL;
	JsonbValue *result = NULL;
	JsonbIteratorToken token;
	JsonbValue	v;

	while ((token = JsonbIteratorNext(&it, &v, false)) != WJB_DONE)
	{
		bool		scalar = token == WJB_KEY || token == WJB_VALUE ||
			token == WJB_ELEM;

		CHECK_FOR_INTERRUPTS();
		if (scalar && v.type == jbvString)
			v.val.string.val =
				unconstify(char *, fence_canonical_text(v.val.string.val,
														&v.val.string.len));
		if (scalar || (token == WJB_BEGIN_ARRAY && v.val.array.rawScalar))
			result = pushJsonbValue(&state, token, &v);
		else
			result = pushJsonbValue(&state, token, NULL);
	}
	return JsonbValueToJsonb(result);
}

static void
put_number(FenceCanonicalForm *form, Numeric number)
{
	bytea	   *wire = DatumGetByteaPP(DirectFunctionCall1(numeric_send,
														   NumericGetDatum(number)));

	if (!fence_canonical_number(form, VARDATA_ANY(wire),
								VARSIZE_ANY_EXHDR(wire)))
		elog(ERROR, "unexpected binary format of numeric");
	pfree(wire);
}

static void
put_scalar(FenceCanonicalForm *form, const JsonbValue *v)
{
	switch (v->type)
	{
		case jbvNull:
			fence_canonical_null(form);
			break;
		case jbvBool:
			fence_canonical_bool(form, v->val.boolean);
			break;
		case jbvNumeric:
			put_number(form, v->val.numeric);
			break;
		case jbvString:
			fence_canonical_string(form, v->val.string.val,
								   v->val.string.len);
			break;
		default:
			elog(ERROR, "unexpected type of jsonb scalar: %d", (int) v->type);
	}
}

/*
 * Walks over the value.  The iterator keeps its own stack, so deep nesting
 * does not matter here.
 */
static void
put_value(FenceCanonicalForm *form, Jsonb *value)
{
	JsonbIterator *it = JsonbIteratorInit(&value->root);
	JsonbIteratorToken token;
	JsonbValue	v;

	while ((token = JsonbIteratorNext(&it, &v, false)) != WJB_DONE)
	{
		CHECK_FOR_INTERRUPTS();
		switch (token)
		{
			case WJB_BEGIN_ARRAY:
				/* jsonb stores a lone scalar as an array, but it is none */
				if (!v.val.array.rawScalar)
					fence_canonical_array(form, v.val.array.nElems);
				break;
			case WJB_BEGIN_OBJECT:
				fence_canonical_object(form, v.val.object.nPairs);
				break;
			case WJB_KEY:
			case WJB_VALUE:
			case WJB_ELEM:
				put_scalar(form, &v);
				break;
			default:
				/* ends say nothing that the counts have not said */
				break;
		}
	}
}

/* FenceCanonicalSink */
static void
hash_bytes(void *arg, const char *bytes, size_t len)
{
	fence_digest_add(FENCE_SHA256, bytes, len);
}

/*
 * Computes the digest of a value.
 */
void
fence_canonical_digest(Jsonb *value, uint8 digest[FENCE_DIGEST_LENGTH])
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pg_fence digest",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext outer = MemoryContextSwitchTo(context);
	FenceCanonicalForm form;

	if (needs_conversion())
		value = copy_in_utf8(value);
	fence_digest_begin(FENCE_SHA256);
	fence_canonical_begin(&form, hash_bytes, NULL);
	put_value(&form, value);
	fence_canonical_end(&form);

	digest[0] = FENCE_DIGEST_VERSION;
	fence_digest_end(FENCE_SHA256, digest + 1);

	MemoryContextSwitchTo(outer);
	MemoryContextDelete(context);
}
