/*-------------------------------------------------------------------------
 *
 * canonical_form_fuzz.c
 *	  Fuzz target for the canonical bytes of JSON values.
 *
 * An input whose first byte is even is a number in binary format.  What must
 * hold:
 *
 *	- it is accepted if and only if it is in that format, and otherwise
 *	  nothing is written
 *	- the bytes say the same number, in decimal, as the input
 *	- no group at either end is zero, and zero has one form; so numbers that
 *	  are equal have the same bytes
 *
 * Any other input is a list of values.  What must hold:
 *
 *	- a reader that knows only the description in canonical_form.c gets the
 *	  same list out of the bytes; so lists that differ have different bytes
 *
 * IDENTIFICATION
 *	  test/unit/canonical_form_fuzz.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "canonical_form.h"

typedef struct Bytes
{
	uint8_t    *data;			/* in memory of the exact size */
	size_t		len;
} Bytes;

typedef struct Reader
{
	const uint8_t *at;
	const uint8_t *end;
} Reader;

/* Where a value begins in the input, and how much of it there is. */
typedef struct Value
{
	char		tag;
	const uint8_t *data;
	size_t		len;			/* or the number of members */
} Value;

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* FenceCanonicalSink */
static void
collect(void *arg, const char *bytes, size_t len)
{
	Bytes	   *to = arg;

	MUST(len > 0);
	to->data = realloc(to->data, to->len + len);
	MUST(to->data != NULL);
	memcpy(to->data + to->len, bytes, len);
	to->len += len;
}

/*
 * Take a big-endian integer; 0 and nothing taken if there are not enough
 * bytes.
 */
static uint32_t
take(Reader *r, int size)
{
	uint32_t	result = 0;

	if (r->end - r->at < size)
		return 0;
	while (size-- > 0)
		result = result << 8 | *r->at++;
	return result;
}

static bool
in_binary_format(const uint8_t *data, size_t size)
{
	size_t		groups;
	size_t		i;
	uint32_t	sign;

	if (size < 8)
		return false;
	groups = data[0] * 256 + data[1];
	sign = data[4] * 256 + data[5];
	if (size != 8 + 2 * groups)
		return false;
	for (i = 0; i < groups; i++)
	{
		if (data[8 + 2 * i] * 256 + data[9 + 2 * i] > 9999)
			return false;
	}
	if (sign == 0xC000 || sign == 0xD000 || sign == 0xF000)
		return groups == 0;
	return sign == 0 || sign == 0x4000;
}

/*
 * The number in decimal: sign, digits without zeros at the ends, exponent of
 * the last one; or only the sign, if there are no digits.  For the caller to
 * free.
 */
static char *
decimal(uint32_t sign, long weight, const uint8_t *groups, size_t ngroups)
{
	char	   *result = malloc(4 * ngroups + 32);
	char	   *digits = result + 1;
	long		exponent = 4 * (weight - (long) ngroups + 1);
	size_t		len = 0;
	size_t		zeros;
	size_t		i;

	MUST(result != NULL);
	for (i = 0; i < ngroups; i++)
		len += sprintf(digits + len, "%04d",
					   groups[2 * i] * 256 + groups[2 * i + 1]);
	while (len > 0 && digits[len - 1] == '0')
	{
		len--;
		exponent++;
	}
	digits[len] = '\0';
	zeros = strspn(digits, "0");
	memmove(digits, digits + zeros, len - zeros + 1);
	len -= zeros;

	if (len == 0)
		sprintf(result, "%x", (unsigned int) (sign == 0x4000 ? 0 : sign));
	else
	{
		result[0] = sign == 0 ? '+' : '-';
		sprintf(digits + len, "e%ld", exponent);
	}
	return result;
}

static void
check_number(const uint8_t *data, size_t size)
{
	Bytes		bytes = {NULL, 0};
	FenceCanonicalForm form;
	Reader		r;
	uint32_t	sign;
	int32_t		weight;
	uint32_t	ngroups;
	char	   *expected;
	char	   *got;
	bool		accepted;

	fence_canonical_begin(&form, collect, &bytes);
	accepted = fence_canonical_number(&form, (const char *) data, size);
	fence_canonical_end(&form);

	MUST(accepted == in_binary_format(data, size));
	if (!accepted)
	{
		MUST(bytes.len == 0);
		return;
	}

	r.at = bytes.data;
	r.end = bytes.data + bytes.len;
	MUST(bytes.len >= 11 && take(&r, 1) == 'n');
	sign = take(&r, 2);
	weight = (int32_t) take(&r, 4);
	ngroups = take(&r, 4);
	MUST((size_t) (r.end - r.at) == 2 * (size_t) ngroups);

	expected = decimal(data[4] * 256 + data[5],
					   (int16_t) (data[2] * 256 + data[3]),
					   data + 8, (size - 8) / 2);
	got = decimal(sign, weight, r.at, ngroups);
	MUST(strcmp(expected, got) == 0);
	free(expected);
	free(got);

	if (ngroups == 0)
		MUST(sign != 0x4000 && weight == 0);
	else
	{
		MUST(r.at[0] != 0 || r.at[1] != 0);
		MUST(r.end[-1] != 0 || r.end[-2] != 0);
	}
	free(bytes.data);
}

/*
 * Take the next value of a list: a byte for its kind, then for some kinds one
 * for the length or the number of members, and the bytes of a string.
 */
static Value
next_value(Reader *r)
{
	Value		v;

	v.tag = "zftsao"[take(r, 1) % 6];
	v.data = NULL;
	v.len = 0;
	if (v.tag == 's')
	{
		v.len = 3 * take(r, 1);
		if (v.len > (size_t) (r->end - r->at))
			v.len = r->end - r->at;
		v.data = r->at;
		r->at += v.len;
	}
	else if (v.tag == 'a' || v.tag == 'o')
		v.len = take(r, 3);
	return v;
}

static void
put_value(FenceCanonicalForm *form, const Value *v)
{
	switch (v->tag)
	{
		case 'z':
			fence_canonical_null(form);
			break;
		case 'f':
		case 't':
			fence_canonical_bool(form, v->tag == 't');
			break;
		case 's':
			fence_canonical_string(form, (const char *) v->data, v->len);
			break;
		case 'a':
			fence_canonical_array(form, v->len);
			break;
		case 'o':
			fence_canonical_object(form, v->len);
			break;
	}
}

static void
check_list(const uint8_t *data, size_t size)
{
	Bytes		bytes = {NULL, 0};
	FenceCanonicalForm form;
	Reader		list = {data, data + size};
	Reader		r;

	fence_canonical_begin(&form, collect, &bytes);
	while (list.at < list.end)
	{
		Value		v = next_value(&list);

		put_value(&form, &v);
	}
	fence_canonical_end(&form);

	list.at = data;
	r.at = bytes.data;
	r.end = bytes.data + bytes.len;
	while (list.at < list.end)
	{
		Value		v = next_value(&list);

		MUST(r.at < r.end && *r.at++ == v.tag);
		if (strchr("sao", v.tag) != NULL)
		{
			MUST(r.end - r.at >= 4 && take(&r, 4) == v.len);
		}
		if (v.tag == 's')
		{
			MUST((size_t) (r.end - r.at) >= v.len);
			MUST(memcmp(r.at, v.data, v.len) == 0);
			r.at += v.len;
		}
	}
	MUST(r.at == r.end);
	free(bytes.data);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t    *copy;

	if (size < 2)
		return 0;

	/* in memory of the exact size */
	copy = malloc(size - 1);
	MUST(copy != NULL);
	memcpy(copy, data + 1, size - 1);
	if (data[0] % 2 == 0)
		check_number(copy, size - 1);
	else
		check_list(copy, size - 1);
	free(copy);
	return 0;
}
