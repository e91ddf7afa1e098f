/*-------------------------------------------------------------------------
 *
 * template_fuzz.c
 *	  Fuzz target for the resource template parser.
 *
 * What must hold for every input:
 *
 *	- nothing is read or written outside of the source and of the memory that
 *	  the parser asked for (the address sanitizer watches), and the source is
 *	  left alone
 *	- the parts have the promised shape, and their lengths are bounded
 *	- written out with braces doubled, the parts make the template that they
 *	  came from, or an equivalent one that parses to the same parts
 *	- an error lies within the source, and everything before it is right
 *
 * Copyright (c) 2026, the pg_fence maintainers
 *
 * test/unit/template_fuzz.c
 *
 *-------------------------------------------------------------------------
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pg_config_manual.h"

#include "check.h"
#include "template.h"

#define NOT_SET		(-1)

typedef struct Parsed
{
	char	   *source;
	char	   *buffer;
	FenceTemplatePart *parts;
	FenceTemplateError error;
	int			nparts;
	int			errpos;
} Parsed;

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Parse a copy of the first len bytes, in memory of the exact size.  The
 * result is for parsed_free.
 */
static Parsed
parse(const char *source, size_t len)
{
	Parsed		p;

	p.source = malloc(len + 1);
	MUST(p.source != NULL);
	memcpy(p.source, source, len);
	p.source[len] = '\0';

	p.buffer = malloc(fence_template_buffer_size(p.source));
	p.parts = malloc(fence_template_max_parts(p.source) *
					 sizeof(FenceTemplatePart));
	MUST(p.buffer != NULL && p.parts != NULL);

	p.nparts = NOT_SET;
	p.errpos = NOT_SET;
	p.error = fence_template_parse(p.source, p.buffer, p.parts,
								   &p.nparts, &p.errpos);
	MUST(memcmp(p.source, source, len) == 0 && p.source[len] == '\0');
	return p;
}

static void
parsed_free(Parsed *p)
{
	free(p->source);
	free(p->buffer);
	free(p->parts);
}

/*
 * Do the parts have the shape that callers rely on?
 */
static void
check_shape(const Parsed *p)
{
	const char *end = p->buffer + fence_template_buffer_size(p->source);
	const char *unused = p->buffer;
	int			literal = 0;
	int			i;

	MUST(p->errpos == NOT_SET);
	MUST(p->nparts >= 1);
	MUST(p->nparts <= fence_template_max_parts(p->source));

	for (i = 0; i < p->nparts; i++)
	{
		const FenceTemplatePart *part = &p->parts[i];

		MUST(part->len >= 1);
		MUST(part->text >= unused);
		MUST(part->len < end - part->text);
		MUST(strlen(part->text) == (size_t) part->len);
		unused = part->text + part->len + 1;

		/* what a text cannot begin with, see template.c */
		if (part->is_column)
		{
			MUST(part->text[0] != '{');
			MUST(part->len <= FENCE_TEMPLATE_COLUMN_MAX);
		}
		else if (i > 0)
		{
			MUST(p->parts[i - 1].is_column);
			MUST(part->text[0] != '}');
		}

		if (!part->is_column)
			literal += part->len;
	}
	MUST(literal <= FENCE_TEMPLATE_LITERAL_MAX);
}

/*
 * Write the parts out as a template.  The result is for the caller to free.
 */
static char *
render(const Parsed *p)
{
	size_t		size = 1;
	char	   *result;
	char	   *out;
	int			i;
	int			j;

	for (i = 0; i < p->nparts; i++)
		size += 2 * (size_t) p->parts[i].len + 2;
	result = malloc(size);
	MUST(result != NULL);

	out = result;
	for (i = 0; i < p->nparts; i++)
	{
		const FenceTemplatePart *part = &p->parts[i];

		if (part->is_column)
			*out++ = '{';
		for (j = 0; j < part->len; j++)
		{
			char		c = part->text[j];

			/* in a name, an opening brace stands for itself */
			if (c == '}' || (c == '{' && !part->is_column))
				*out++ = c;
			*out++ = c;
		}
		if (part->is_column)
			*out++ = '}';
	}
	*out = '\0';
	return result;
}

/*
 * Do the parts make the template that they came from?  They may only double
 * closing braces that were single there.  And do they parse to the same parts
 * again?
 */
static void
check_round_trip(const Parsed *p)
{
	char	   *rendered = render(p);
	Parsed		again = parse(rendered, strlen(rendered));
	const char *in = p->source;
	const char *out;
	int			i;

	for (out = rendered; *out != '\0'; out++)
	{
		if (*out == *in)
			in++;
		else
			MUST(*out == '}');
	}
	MUST(*in == '\0');

	MUST(again.error == FENCE_TEMPLATE_OK);
	MUST(again.nparts == p->nparts);
	for (i = 0; i < p->nparts; i++)
	{
		MUST(again.parts[i].is_column == p->parts[i].is_column);
		MUST(again.parts[i].len == p->parts[i].len);
		MUST(strcmp(again.parts[i].text, p->parts[i].text) == 0);
	}

	parsed_free(&again);
	free(rendered);
}

/*
 * Is the error where it is said to be, and the first one?
 */
static void
check_error(const Parsed *p)
{
	size_t		len = strlen(p->source);

	MUST(p->nparts == NOT_SET);
	MUST(p->errpos >= 0);

	if (p->error == FENCE_TEMPLATE_EMPTY)
	{
		MUST(len == 0 && p->errpos == 0);
		return;
	}

	MUST((size_t) p->errpos < len);
	switch (p->error)
	{
		case FENCE_TEMPLATE_OPEN_BRACE:
			MUST(p->source[p->errpos] == '{');
			break;
		case FENCE_TEMPLATE_EMPTY_COLUMN:
			MUST(strncmp(p->source + p->errpos, "{}", 2) == 0);
			break;
		case FENCE_TEMPLATE_LONG_COLUMN:
			MUST(p->source[p->errpos] == '{');
			/* the name, with a byte too many, and both braces */
			MUST(len - p->errpos >= FENCE_TEMPLATE_COLUMN_MAX + 3);
			break;
		case FENCE_TEMPLATE_LONG_LITERAL:
			MUST(p->errpos >= FENCE_TEMPLATE_LITERAL_MAX);
			break;
		default:
			MUST(!"a known error");
	}

	if (p->errpos > 0)
	{
		Parsed		before = parse(p->source, p->errpos);

		MUST(before.error == FENCE_TEMPLATE_OK);
		check_shape(&before);
		parsed_free(&before);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *source = (const char *) data;
	Parsed		p;

	/* what lies behind a NUL byte is not part of a C string */
	p = parse(source, size == 0 ? 0 : strnlen(source, size));

	if (p.error == FENCE_TEMPLATE_OK)
	{
		check_shape(&p);
		check_round_trip(&p);
	}
	else
		check_error(&p);

	parsed_free(&p);
	return 0;
}
