/*-------------------------------------------------------------------------
 *
 * canonical_form_test.c
 *	  Tests of the canonical bytes of JSON values, without a server.
 *
 * The bytes in here are written down once and for all: digests of them are
 * stored, and have to match in every later version.  A test that fails
 * because the bytes were changed on purpose asks for a new
 * FENCE_DIGEST_VERSION.
 *
 * IDENTIFICATION
 *	  test/unit/canonical_form_test.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "canonical_form.h"

typedef struct Bytes
{
	char	   *data;			/* in memory of the exact size */
	size_t		len;
	int			pieces;
} Bytes;

/* FenceCanonicalSink */
static void
collect(void *arg, const char *bytes, size_t len)
{
	Bytes	   *to = arg;

	to->data = realloc(to->data, to->len + len);
	if (to->data == NULL)
		abort();
	memcpy(to->data + to->len, bytes, len);
	to->len += len;
	to->pieces++;
}

/*
 * Writes one value in a notation of our own: z f t, [ and { with a digit for
 * the number of members, 'text', and #hex; for a number in binary format.
 * Returns what is behind it.
 */
static const char *
put_notation(FenceCanonicalForm *form, const char *notation)
{
	const char *end;
	char	   *copy;
	size_t		len;
	size_t		i;

	switch (*notation++)
	{
		case 'z':
			fence_canonical_null(form);
			break;
		case 'f':
			fence_canonical_bool(form, false);
			break;
		case 't':
			fence_canonical_bool(form, true);
			break;
		case '[':
			fence_canonical_array(form, *notation++ - '0');
			break;
		case '{':
			fence_canonical_object(form, *notation++ - '0');
			break;
		case '\'':
			end = strchr(notation, '\'');
			len = end - notation;
			copy = malloc(len);
			memcpy(copy, notation, len);
			fence_canonical_string(form, copy, len);
			free(copy);
			notation = end + 1;
			break;
		case '#':
			end = strchr(notation, ';');
			len = (end - notation) / 2;
			copy = malloc(len);
			for (i = 0; i < len; i++)
			{
				unsigned int byte;

				if (sscanf(notation + 2 * i, "%2x", &byte) != 1)
					abort();
				copy[i] = (char) byte;
			}
			if (!fence_canonical_number(form, copy, len))
				fence_canonical_string(form, "refused", 7);
			free(copy);
			notation = end + 1;
			break;
		default:
			abort();
	}
	return notation;
}

/*
 * The bytes of the values in this notation, for the caller to free.
 */
static Bytes
bytes_of(const char *notation)
{
	Bytes		result = {NULL, 0, 0};
	FenceCanonicalForm form;

	fence_canonical_begin(&form, collect, &result);
	while (*notation != '\0')
		notation = put_notation(&form, notation);
	fence_canonical_end(&form);
	return result;
}

/*
 * Are these the bytes, given in hexadecimal with blanks?
 */
static bool
gives(const char *notation, const char *expected)
{
	Bytes		b = bytes_of(notation);
	char	   *hex = malloc(2 * b.len + 1);
	const char *e = expected;
	bool		same = true;
	size_t		i;

	for (i = 0; i < b.len; i++)
		sprintf(hex + 2 * i, "%02x", (unsigned char) b.data[i]);
	hex[2 * b.len] = '\0';

	for (i = 0; same && *e != '\0'; e++)
	{
		if (*e != ' ')
			same = (hex[i++] == *e);
	}
	same = same && hex[i] == '\0';
	if (!same)
		printf("%s gives %s\n", notation, hex);
	free(hex);
	free(b.data);
	return same;
}

static bool
equal(const char *one, const char *other)
{
	Bytes		a = bytes_of(one);
	Bytes		b = bytes_of(other);
	bool		same = a.len == b.len && memcmp(a.data, b.data, a.len) == 0;

	free(a.data);
	free(b.data);
	return same;
}

/*
 * Are the bytes different, and neither the beginning of the other?
 */
static bool
different(const char *one, const char *other)
{
	Bytes		a = bytes_of(one);
	Bytes		b = bytes_of(other);
	bool		differ = memcmp(a.data, b.data,
								a.len < b.len ? a.len : b.len) != 0;

	free(a.data);
	free(b.data);
	return differ;
}

/* Numbers in binary format: groups, weight, sign, display scale, groups. */
#define ZERO		"#0000000000000000;"
#define ZERO_POINT	"#0000000000000002;"	/* 0.00 */
#define ONE			"#00010000000000000001;"
#define ONE_POINT	"#00010000000000010001;"	/* 1.0 */
#define MINUS_ONE	"#00010000400000000001;"
#define TEN			"#0001000000000000000a;"
#define MYRIAD		"#00010001000000000001;"	/* 10000 */
#define TENTH		"#0001ffff0000000103e8;"	/* 0.1 */
#define NAN_		"#00000000c0000000;"
#define INFINITY_	"#00000000d0000000;"
#define MINUS_INF	"#00000000f0000000;"

static void
test_scalars(void)
{
	CHECK(gives("z", "7a"));
	CHECK(gives("f", "66"));
	CHECK(gives("t", "74"));
	CHECK(gives("''", "73 00000000"));
	CHECK(gives("'a'", "73 00000001 61"));
	CHECK(gives("'\xc3\xbc'", "73 00000002 c3bc"));
}

static void
test_containers(void)
{
	CHECK(gives("[0", "61 00000000"));
	CHECK(gives("{0", "6f 00000000"));
	CHECK(gives("[2zt", "61 00000002 7a 74"));
	CHECK(gives("{1'a'z", "6f 00000001 73 00000001 61 7a"));
	CHECK(gives("{2'a'" ONE "'bc'[1f",
				"6f 00000002"
				"73 00000001 61   6e 0000 00000000 00000001 0001"
				"73 00000002 6263 61 00000001 66"));
}

static void
test_numbers(void)
{
	CHECK(gives(ZERO, "6e 0000 00000000 00000000"));
	CHECK(gives(ONE, "6e 0000 00000000 00000001 0001"));
	CHECK(gives(MINUS_ONE, "6e 4000 00000000 00000001 0001"));
	CHECK(gives(TEN, "6e 0000 00000000 00000001 000a"));
	CHECK(gives(MYRIAD, "6e 0000 00000001 00000001 0001"));
	CHECK(gives(TENTH, "6e 0000 ffffffff 00000001 03e8"));
	/* 2^53 + 1, and 12345.67 */
	CHECK(gives("#0004000300000000" "2327" "07cb" "09f1" "03e1;",
				"6e 0000 00000003 00000004 2327 07cb 09f1 03e1"));
	CHECK(gives("#0003000100000002" "0001" "0929" "1a2c;",
				"6e 0000 00000001 00000003 0001 0929 1a2c"));
	/* the ends of the range: 1e131071 and 1e-16383 */
	CHECK(gives("#00017fff00000000" "03e8;", "6e 0000 00007fff 00000001 03e8"));
	CHECK(gives("#0001f00000003fff" "000a;", "6e 0000 fffff000 00000001 000a"));
	CHECK(gives(NAN_, "6e c000 00000000 00000000"));
	CHECK(gives(INFINITY_, "6e d000 00000000 00000000"));
	CHECK(gives(MINUS_INF, "6e f000 00000000 00000000"));
}

/* What depends on the way of writing makes no difference. */
static void
test_equal_numbers(void)
{
	CHECK(equal(ZERO, ZERO_POINT));
	CHECK(equal(ONE, ONE_POINT));
	/* zeros with a sign, with a weight, with groups */
	CHECK(equal(ZERO, "#0000000040000000;"));
	CHECK(equal(ZERO, "#0000000500000000;"));
	CHECK(equal(ZERO, "#0002000500000000" "0000" "0000;"));
	CHECK(equal(ZERO, "#0001fff04000000a" "0000;"));
	/* zero groups before, behind, and on both sides */
	CHECK(equal(ONE, "#0002000100000000" "0000" "0001;"));
	CHECK(equal(ONE, "#0003000000000008" "0001" "0000" "0000;"));
	CHECK(equal(MINUS_ONE, "#0004000240000004" "0000" "0000" "0001" "0000;"));
	CHECK(equal(TENTH, "#0002000000000001" "0000" "03e8;"));
	/* the weight wraps around to nothing else */
	CHECK(gives("#0002800000000000" "0000" "0001;",
				"6e 0000 ffff7fff 00000001 0001"));
	/* a zero group in the middle is part of the number: 100000001 */
	CHECK(gives("#0003000200000000" "0001" "0000" "0001;",
				"6e 0000 00000002 00000003 0001 0000 0001"));
}

static void
test_different_numbers(void)
{
	const char *numbers[] = {ZERO, ONE, MINUS_ONE, TEN, MYRIAD, TENTH, NAN_,
		INFINITY_, MINUS_INF,
		"#00020000000000040001" "0001;",	/* 1.0001 */
		"#0002000100000000" "0001" "0001;", /* 10001 */
		"#0004000300000000" "2327" "07cb" "09f1" "03e0;",	/* 2^53 */
		"#0004000300000000" "2327" "07cb" "09f1" "03e1;"};
	int			n = sizeof(numbers) / sizeof(numbers[0]);
	int			i;
	int			j;

	for (i = 0; i < n; i++)
	{
		for (j = 0; j < i; j++)
			CHECK(different(numbers[i], numbers[j]));
	}
}

static void
test_malformed_numbers(void)
{
	CHECK(equal("#;", "'refused'"));
	CHECK(equal("#00000000000000;", "'refused'"));
	/* a group too few, a group too many, half a group */
	CHECK(equal("#0001000000000000;", "'refused'"));
	CHECK(equal("#0002000000000000" "0001;", "'refused'"));
	CHECK(equal("#0000000000000000" "0001;", "'refused'"));
	CHECK(equal("#0001000000000000" "000100;", "'refused'"));
	CHECK(equal("#ffff000000000000" "0001;", "'refused'"));
	/* 9999 is a group, 10000 is not */
	CHECK(gives("#0001000000000000" "270f;", "6e 0000 00000000 00000001 270f"));
	CHECK(equal("#0001000000000000" "2710;", "'refused'"));
	CHECK(equal("#0002000000000000" "0001" "ffff;", "'refused'"));
	/* signs that do not exist, and NaN with digits */
	CHECK(equal("#0000000080000000;", "'refused'"));
	CHECK(equal("#0000000000010000;", "'refused'"));
	CHECK(equal("#00010000c0000000" "0001;", "'refused'"));
	CHECK(equal("#00010000d0000000" "0000;", "'refused'"));
}

/* Each of these is what a careless encoding takes for the other. */
static void
test_structure(void)
{
	CHECK(different("'1'", ONE));
	CHECK(different("'z'", "z"));
	CHECK(different("''", "z"));
	CHECK(different("'t'", "t"));
	CHECK(different("f", "z"));
	CHECK(different("f", ZERO));
	CHECK(different("[0", "{0"));
	CHECK(different("[0", "z"));
	CHECK(different("{0", "z"));
	CHECK(different("[0", "''"));
	CHECK(different("z", "[1z"));
	CHECK(different("'a'", "[1'a'"));
	CHECK(different("[1'ab'", "[2'a''b'"));
	CHECK(different("[2'a''bc'", "[2'ab''c'"));
	CHECK(different("[2'''a'", "[2'a'''"));
	CHECK(different("[1z", "[2zz"));
	CHECK(different("[2[1zz", "[2z[1z"));
	CHECK(different("[2[2zzz", "[2[1z[1z"));
	CHECK(different("[1[0", "[0"));
	CHECK(different("[2'a'z", "{1'a'z"));
	CHECK(different("{1'a''b'", "{1'ab'''"));
	CHECK(different("{1'a'z", "{0"));
	CHECK(different("{2'a'z'b'z", "{1'a'{1'b'z"));
	CHECK(different("[2{1'a'z'b'", "[1{2'a'z'b'z"));
	/* a string that holds the bytes of a value */
	CHECK(different("'s'", "''"));
	CHECK(different("[1'a'", "'[1a'"));
}

/* Values that do not fit into the buffer, and such that just do. */
static void
test_buffer(void)
{
	size_t		size = sizeof(((FenceCanonicalForm *) NULL)->buffer);
	size_t		before;
	size_t		len;

	for (before = 0; before <= size; before += 16)
	{
		int			wrong = 0;

		for (len = 0; len <= 2 * size + 3; len++)
		{
			char	   *text = malloc(len);
			Bytes		b = {NULL, 0, 0};
			FenceCanonicalForm form;
			bool		right;
			size_t		i;

			memset(text, 'x', len);
			fence_canonical_begin(&form, collect, &b);
			for (i = 0; i < before; i++)
				fence_canonical_null(&form);
			fence_canonical_string(&form, text, len);
			fence_canonical_null(&form);
			fence_canonical_end(&form);

			right = b.len == before + 5 + len + 1;
			for (i = 0; right && i < before; i++)
				right = b.data[i] == 'z';
			right = right && b.data[before] == 's' &&
				memcmp(b.data + before + 5, text, len) == 0 &&
				b.data[b.len - 1] == 'z' && b.pieces <= 4;
			if (!right)
			{
				printf("%zu values, then a string of %zu\n", before, len);
				wrong++;
			}
			free(text);
			free(b.data);
		}
		CHECK(wrong == 0);
	}

	/* ended twice: nothing more comes */
	{
		Bytes		b = {NULL, 0, 0};
		FenceCanonicalForm form;

		fence_canonical_begin(&form, collect, &b);
		fence_canonical_end(&form);
		CHECK(b.pieces == 0);
		fence_canonical_null(&form);
		fence_canonical_end(&form);
		fence_canonical_end(&form);
		CHECK(b.len == 1 && b.pieces == 1);
		free(b.data);
	}
}

int
main(void)
{
	test_scalars();
	test_containers();
	test_numbers();
	test_equal_numbers();
	test_different_numbers();
	test_malformed_numbers();
	test_structure();
	test_buffer();

	return check_summary();
}
