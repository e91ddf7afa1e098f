/*-------------------------------------------------------------------------
 *
 * canonical_form.c
 *	  Canonical bytes of a JSON value.
 *
 * Equal values have the same bytes and different ones have different bytes,
 * on every platform and in every version of the server.  What is stored of a
 * value is a hash of these bytes, so they must never change: a change is a
 * new FENCE_DIGEST_VERSION (canonical.h).
 *
 *	null		'z'
 *	false		'f'
 *	true		't'
 *	number		'n' sign (2) weight (4) groups (4), then 2 for each group
 *	string		's' length (4), then the bytes
 *	array		'a' elements (4), then the elements
 *	object		'o' pairs (4), then a string and a value for each
 *
 * In parentheses is the number of bytes; integers are big-endian.  Each value
 * tells its kind first and then how much follows, so no value's bytes are the
 * beginning of another's, and what stands in a string cannot look like
 * structure.  A lone scalar is not an array.
 *
 * A number is the groups of four decimal digits that numeric_send() has,
 * without those that are zero at either end, and without the display scale:
 * 1, 1.0 and 1e0 are one value.  Neither the digits before the point nor
 * those behind it are written out, so 1e131071 is as short as in jsonb.
 *
 * The caller sees to the order of the pairs and the encoding of the strings.
 *
 * Nothing in this file calls the server, and there is no Assert, for the
 * reasons given in template.c.
 *
 * IDENTIFICATION
 *	  src/canonical_form.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "canonical_form.h"

/* What numeric_send() makes: a header, then the groups, in 16 bits each. */
#define WIRE_HEADER		(4 * sizeof(uint16))
#define WIRE_BASE		10000
#define WIRE_POSITIVE	0x0000
#define WIRE_NEGATIVE	0x4000
#define WIRE_NAN		0xC000
#define WIRE_INFINITY	0xD000
#define WIRE_MINUS_INFINITY 0xF000

typedef struct Number
{
	uint16		sign;
	int32		weight;			/* of the first group, in powers of the base */
	size_t		ngroups;
	const char *groups;
} Number;

/*
 * Starts a value whose bytes go to sink.
 */
void
fence_canonical_begin(FenceCanonicalForm *form, FenceCanonicalSink sink,
					  void *arg)
{
	form->sink = sink;
	form->arg = arg;
	form->used = 0;
}

/*
 * Hands over what is left in the buffer.  Without this the value is not
 * complete.
 */
void
fence_canonical_end(FenceCanonicalForm *form)
{
	if (form->used > 0)
		form->sink(form->arg, form->buffer, form->used);
	form->used = 0;
}

static void
put(FenceCanonicalForm *form, const char *bytes, size_t len)
{
	if (len > sizeof(form->buffer) - form->used)
		fence_canonical_end(form);

	if (len > sizeof(form->buffer))
		form->sink(form->arg, bytes, len);
	else
	{
		memcpy(form->buffer + form->used, bytes, len);
		form->used += len;
	}
}

static void
put_tag(FenceCanonicalForm *form, char tag)
{
	put(form, &tag, 1);
}

static void
put_uint16(FenceCanonicalForm *form, uint16 value)
{
	char		bytes[2] = {(char) (value >> 8), (char) value};

	put(form, bytes, sizeof(bytes));
}

static void
put_uint32(FenceCanonicalForm *form, uint32 value)
{
	put_uint16(form, value >> 16);
	put_uint16(form, value & 0xFFFF);
}

void
fence_canonical_null(FenceCanonicalForm *form)
{
	put_tag(form, 'z');
}

void
fence_canonical_bool(FenceCanonicalForm *form, bool value)
{
	put_tag(form, value ? 't' : 'f');
}

void
fence_canonical_string(FenceCanonicalForm *form, const char *text, size_t len)
{
	put_tag(form, 's');
	put_uint32(form, len);
	put(form, text, len);
}

/*
 * Starts an array; its elements are the values that follow.
 */
void
fence_canonical_array(FenceCanonicalForm *form, size_t elements)
{
	put_tag(form, 'a');
	put_uint32(form, elements);
}

/*
 * Starts an object; the strings and values that follow in turn are its keys
 * and values.
 */
void
fence_canonical_object(FenceCanonicalForm *form, size_t pairs)
{
	put_tag(form, 'o');
	put_uint32(form, pairs);
}

static uint16
uint16_at(const char *bytes, size_t index)
{
	const unsigned char *at = (const unsigned char *) bytes + 2 * index;

	return (uint16) (at[0] << 8 | at[1]);
}

/*
 * Reads the header and checks it against the length.
 */
static bool
read_number(const char *wire, size_t len, Number *number)
{
	size_t		i;

	if (len < WIRE_HEADER)
		return false;

	number->ngroups = uint16_at(wire, 0);
	number->weight = (int16) uint16_at(wire, 1);
	number->sign = uint16_at(wire, 2);
	number->groups = wire + WIRE_HEADER;

	if (len != WIRE_HEADER + number->ngroups * sizeof(uint16))
		return false;
	for (i = 0; i < number->ngroups; i++)
	{
		if (uint16_at(number->groups, i) >= WIRE_BASE)
			return false;
	}

	switch (number->sign)
	{
		case WIRE_POSITIVE:
		case WIRE_NEGATIVE:
			return true;
		case WIRE_NAN:
		case WIRE_INFINITY:
		case WIRE_MINUS_INFINITY:
			return number->ngroups == 0;
		default:
			return false;
	}
}

/*
 * Removes what depends on how the number was written.
 *
 * The server strips numbers in the same way before it stores them.  It is
 * done here again because nothing promises that, and a digest outlives the
 * version of the server that computed it.
 */
static void
strip_number(Number *number)
{
	while (number->ngroups > 0 && uint16_at(number->groups, 0) == 0)
	{
		number->groups += sizeof(uint16);
		number->ngroups--;
		number->weight--;
	}
	while (number->ngroups > 0 &&
		   uint16_at(number->groups, number->ngroups - 1) == 0)
		number->ngroups--;

	if (number->ngroups == 0)
	{
		number->weight = 0;
		if (number->sign == WIRE_NEGATIVE)
			number->sign = WIRE_POSITIVE;
	}
}

/*
 * A number in the format of numeric_send().  Returns false, and has written
 * nothing, if it is not in that format.
 */
bool
fence_canonical_number(FenceCanonicalForm *form, const char *wire, size_t len)
{
	Number		number;

	if (!read_number(wire, len, &number))
		return false;
	strip_number(&number);

	put_tag(form, 'n');
	put_uint16(form, number.sign);
	put_uint32(form, (uint32) number.weight);
	put_uint32(form, number.ngroups);
	put(form, number.groups, number.ngroups * sizeof(uint16));
	return true;
}
