/*-------------------------------------------------------------------------
 *
 * template_test.c
 *	  Tests of the resource template parser, without a server.
 *
 * Every template is parsed from and into memory of exactly the size that the
 * parser asks for, so that the address sanitizer sees a byte too many.
 *
 * Copyright (c) 2026, the pg_fence maintainers
 *
 * test/unit/template_test.c
 *
 *-------------------------------------------------------------------------
 */
#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
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

/*
 * Parse a copy of the template.  The result is for parsed_free.
 */
static Parsed
parse(const char *source)
{
	Parsed		p;

	p.source = strdup(source);
	p.buffer = malloc(fence_template_buffer_size(source));
	p.parts = malloc(fence_template_max_parts(source) *
					 sizeof(FenceTemplatePart));
	if (p.source == NULL || p.buffer == NULL || p.parts == NULL)
		abort();
	p.nparts = NOT_SET;
	p.errpos = NOT_SET;
	p.error = fence_template_parse(p.source, p.buffer, p.parts,
								   &p.nparts, &p.errpos);
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
 * Tell what became of a template that a check has failed on.
 */
static void
print_parsed(const Parsed *p)
{
	int			i;

	printf("\"%s\" gives", p->source);
	if (p->error != FENCE_TEMPLATE_OK)
		printf(" at byte %d: %s", p->errpos,
			   fence_template_error_text(p->error));
	for (i = 0; i < p->nparts; i++)
		printf(" \"%c%s\"", p->parts[i].is_column ? '@' : '=',
			   p->parts[i].text);
	printf("\n");
}

/*
 * Does the template consist of these parts?  They are given as strings that
 * end with a NULL: "=text" for literal text, "@name" for a column.
 */
static bool
gives(const char *source,...)
{
	Parsed		p = parse(source);
	bool		same = (p.error == FENCE_TEMPLATE_OK && p.errpos == NOT_SET);
	const char *expected;
	va_list		args;
	int			i = 0;

	va_start(args, source);
	while ((expected = va_arg(args, const char *)) != NULL && same)
	{
		same = i < p.nparts &&
			p.parts[i].is_column == (expected[0] == '@') &&
			p.parts[i].len == (int) strlen(expected + 1) &&
			strcmp(p.parts[i].text, expected + 1) == 0;
		i++;
	}
	va_end(args);

	same = same && i == p.nparts;
	if (!same)
		print_parsed(&p);
	parsed_free(&p);
	return same;
}

/*
 * Is the template refused for this reason, found at this byte?
 */
static bool
fails(const char *source, FenceTemplateError error, int errpos)
{
	Parsed		p = parse(source);
	bool		same = (p.error == error && p.errpos == errpos &&
						p.nparts == NOT_SET);

	if (!same)
		print_parsed(&p);
	parsed_free(&p);
	return same;
}

/*
 * Join strings that end with a NULL.  The result is for the caller to free.
 */
static char *
join(const char *first,...)
{
	size_t		size = strlen(first) + 1;
	char	   *result = malloc(size);
	const char *next;
	va_list		args;

	if (result == NULL)
		abort();
	strcpy(result, first);

	va_start(args, first);
	while ((next = va_arg(args, const char *)) != NULL)
	{
		size += strlen(next);
		result = realloc(result, size);
		if (result == NULL)
			abort();
		strcat(result, next);
	}
	va_end(args);
	return result;
}

/*
 * A string of count times the same text, for the caller to free.
 */
static char *
repeat(const char *text, int count)
{
	char	   *result = malloc(strlen(text) * count + 1);
	int			i;

	if (result == NULL)
		abort();
	result[0] = '\0';
	for (i = 0; i < count; i++)
		strcpy(result + strlen(text) * i, text);
	return result;
}

static void
test_plain(void)
{
	CHECK(gives("nightly-report", "=nightly-report", NULL));
	CHECK(gives("x", "=x", NULL));
	CHECK(gives(" ", "= ", NULL));
	CHECK(gives("a b\tc\n", "=a b\tc\n", NULL));
	CHECK(gives("%s:%n\\", "=%s:%n\\", NULL));
}

static void
test_columns(void)
{
	CHECK(gives("{id}", "@id", NULL));
	CHECK(gives("stock-sync:{warehouse_id}",
				"=stock-sync:", "@warehouse_id", NULL));
	CHECK(gives("{id}-lock", "@id", "=-lock", NULL));
	CHECK(gives("{a}{b}{a}", "@a", "@b", "@a", NULL));
	CHECK(gives("t:{a}/{b}/end", "=t:", "@a", "=/", "@b", "=/end", NULL));
}

/* The name is what stands between the braces, whatever it is. */
static void
test_column_names(void)
{
	CHECK(gives("{Id}", "@Id", NULL));
	CHECK(gives("{ id }", "@ id ", NULL));
	CHECK(gives("{ }", "@ ", NULL));
	CHECK(gives("{\"Id\"}", "@\"Id\"", NULL));
	CHECK(gives("{a.b}", "@a.b", NULL));
	CHECK(gives("{a\nb}", "@a\nb", NULL));
}

static void
test_literal_braces(void)
{
	CHECK(gives("{{", "={", NULL));
	CHECK(gives("}", "=}", NULL));
	CHECK(gives("}}", "=}", NULL));
	CHECK(gives("}}}", "=}}", NULL));
	CHECK(gives("}}}}", "=}}", NULL));
	CHECK(gives("{{{{", "={{", NULL));
	CHECK(gives("{{id}}", "={id}", NULL));
	CHECK(gives("{{id}", "={id}", NULL));
	CHECK(gives("a}b", "=a}b", NULL));
	CHECK(gives("a{{b}}c", "=a{b}c", NULL));
	CHECK(gives("{{{id}", "={", "@id", NULL));
	CHECK(gives("}}{id}", "=}", "@id", NULL));
	CHECK(gives("}{id}", "=}", "@id", NULL));
	CHECK(gives("{id}{{}}", "@id", "={}", NULL));
	CHECK(gives("{id}:}}", "@id", "=:}", NULL));
}

static void
test_braces_in_names(void)
{
	CHECK(gives("{a}}b}", "@a}b", NULL));
	CHECK(gives("{a}}}", "@a}", NULL));
	CHECK(gives("{}}a}", "@}a", NULL));
	CHECK(gives("{}}}", "@}", NULL));
	CHECK(gives("{a}}}}}", "@a}}", NULL));
	CHECK(gives("{a{b}", "@a{b", NULL));
	CHECK(gives("{a{{b}", "@a{{b", NULL));
	CHECK(gives("x{a}}b}y}}z", "=x", "@a}b", "=y}z", NULL));

	/* left to right: what looks like three braces around a name is not */
	CHECK(gives("{{{id}}}", "={", "@id}", NULL));
}

static void
test_multibyte(void)
{
	/* u-umlaut, euro sign and a character beyond the basic plane, in UTF-8 */
	CHECK(gives("\xc3\xbc:{\xe2\x82\xac}\xf0\x9f\x94\x92",
				"=\xc3\xbc:", "@\xe2\x82\xac", "=\xf0\x9f\x94\x92", NULL));
	/* bytes that are not UTF-8 at all */
	CHECK(gives("\xff{\xfe\x80}", "=\xff", "@\xfe\x80", NULL));
	/* the position of an error counts bytes */
	CHECK(fails("\xc3\xbc{", FENCE_TEMPLATE_OPEN_BRACE, 2));
}

static void
test_empty(void)
{
	CHECK(fails("", FENCE_TEMPLATE_EMPTY, 0));
}

static void
test_open_brace(void)
{
	CHECK(fails("{", FENCE_TEMPLATE_OPEN_BRACE, 0));
	CHECK(fails("{id", FENCE_TEMPLATE_OPEN_BRACE, 0));
	CHECK(fails("stock:{id", FENCE_TEMPLATE_OPEN_BRACE, 6));
	CHECK(fails("stock:{", FENCE_TEMPLATE_OPEN_BRACE, 6));
	CHECK(fails("{a}{b", FENCE_TEMPLATE_OPEN_BRACE, 3));
	CHECK(fails("{{{", FENCE_TEMPLATE_OPEN_BRACE, 2));
	CHECK(fails("{{{id", FENCE_TEMPLATE_OPEN_BRACE, 2));

	/* the closing brace is taken for one of the name */
	CHECK(fails("{a}}", FENCE_TEMPLATE_OPEN_BRACE, 0));
	CHECK(fails("{}}", FENCE_TEMPLATE_OPEN_BRACE, 0));
	CHECK(fails("{a}}}}", FENCE_TEMPLATE_OPEN_BRACE, 0));
}

static void
test_empty_column(void)
{
	CHECK(fails("{}", FENCE_TEMPLATE_EMPTY_COLUMN, 0));
	CHECK(fails("a{}b", FENCE_TEMPLATE_EMPTY_COLUMN, 1));
	CHECK(fails("{a}{}", FENCE_TEMPLATE_EMPTY_COLUMN, 3));
	CHECK(fails("{{{}", FENCE_TEMPLATE_EMPTY_COLUMN, 2));

	/* the first error is the one that is told */
	CHECK(fails("{}{", FENCE_TEMPLATE_EMPTY_COLUMN, 0));
}

static void
test_long_column(void)
{
	char	   *name = repeat("n", FENCE_TEMPLATE_COLUMN_MAX);
	char	   *braces = repeat("}}", FENCE_TEMPLATE_COLUMN_MAX);
	char	   *half = repeat("}", FENCE_TEMPLATE_COLUMN_MAX);
	char	   *source;
	char	   *expected;

	CHECK(FENCE_TEMPLATE_COLUMN_MAX == 63);

	source = join("a{", name, "}b", NULL);
	expected = join("@", name, NULL);
	CHECK(gives(source, "=a", expected, "=b", NULL));
	free(source);
	free(expected);

	source = join("a{", name, "n}b", NULL);
	CHECK(fails(source, FENCE_TEMPLATE_LONG_COLUMN, 1));
	free(source);

	/* the limit is for the name, not for the way it is written */
	source = join("{", braces, "}", NULL);
	expected = join("@", half, NULL);
	CHECK(gives(source, expected, NULL));
	free(source);
	free(expected);

	source = join("{", braces, "}}}", NULL);
	CHECK(fails(source, FENCE_TEMPLATE_LONG_COLUMN, 0));
	free(source);

	/* bytes, not characters */
	source = join("{\xc3\xbc", name + 1, "}", NULL);
	CHECK(fails(source, FENCE_TEMPLATE_LONG_COLUMN, 0));
	free(source);

	/* a brace that is never closed is not a long name */
	source = join("{", name, "n", NULL);
	CHECK(fails(source, FENCE_TEMPLATE_OPEN_BRACE, 0));
	free(source);

	free(name);
	free(braces);
	free(half);
}

static void
test_long_literal(void)
{
	char	   *text = repeat("t", FENCE_TEMPLATE_LITERAL_MAX);
	char	   *braces = repeat("{{", FENCE_TEMPLATE_LITERAL_MAX);
	char	   *half = repeat("{", FENCE_TEMPLATE_LITERAL_MAX);
	char	   *source;
	char	   *expected;

	CHECK(FENCE_TEMPLATE_LITERAL_MAX == 512);

	expected = join("=", text, NULL);
	CHECK(gives(text, expected, NULL));
	source = join(text, "{id}", NULL);
	CHECK(gives(source, expected, "@id", NULL));
	free(source);
	free(expected);

	source = join(text, "t", NULL);
	CHECK(fails(source, FENCE_TEMPLATE_LONG_LITERAL, 512));
	free(source);

	/* all literal text counts together, names do not count */
	source = join("t{id}", text + 1, NULL);
	expected = join("=", text + 1, NULL);
	CHECK(gives(source, "=t", "@id", expected, NULL));
	free(source);
	free(expected);
	source = join("t{id}", text, NULL);
	CHECK(fails(source, FENCE_TEMPLATE_LONG_LITERAL, 516));
	free(source);

	/* a doubled brace is one byte, and wrong as a whole */
	expected = join("=", half, NULL);
	CHECK(gives(braces, expected, NULL));
	free(expected);
	source = join(braces, "{{", NULL);
	CHECK(fails(source, FENCE_TEMPLATE_LONG_LITERAL, 1024));
	free(source);

	free(text);
	free(braces);
	free(half);
}

static void
test_many_parts(void)
{
	char	   *source = repeat("a{b}", FENCE_TEMPLATE_LITERAL_MAX);
	Parsed		p = parse(source);
	int			wrong = 0;
	int			i;

	/* the longest alternation that the limit on literal text allows */
	CHECK(p.error == FENCE_TEMPLATE_OK);
	CHECK(p.nparts == 2 * FENCE_TEMPLATE_LITERAL_MAX);
	for (i = 0; i < p.nparts; i++)
	{
		if (p.parts[i].is_column != (i % 2 == 1) ||
			strcmp(p.parts[i].text, i % 2 == 1 ? "b" : "a") != 0)
			wrong++;
	}
	CHECK(wrong == 0);
	parsed_free(&p);
	free(source);

	/* there is no limit on placeholders alone */
	source = repeat("{b}", 5000);
	p = parse(source);
	CHECK(p.error == FENCE_TEMPLATE_OK);
	CHECK(p.nparts == 5000);
	parsed_free(&p);
	free(source);
}

/* The sizes are enough where they are tight: the parser uses all of them. */
static void
test_sizes(void)
{
	CHECK(fence_template_buffer_size("") == 1);
	CHECK(fence_template_buffer_size("abc") == 4);
	CHECK(fence_template_max_parts("") == 1);
	CHECK(fence_template_max_parts("abc") == 1);
	CHECK(fence_template_max_parts("a{b}c") == 3);
	CHECK(gives("a{b}c", "=a", "@b", "=c", NULL));
	CHECK(gives("a{b}c{d}e", "=a", "@b", "=c", "@d", "=e", NULL));
}

static void
test_error_texts(void)
{
	FenceTemplateError error;
	FenceTemplateError other;

	for (error = FENCE_TEMPLATE_EMPTY; error <= FENCE_TEMPLATE_LONG_LITERAL;
		 error++)
	{
		const char *text = fence_template_error_text(error);

		/* fit to stand in the middle of a message */
		CHECK(strlen(text) > 0);
		CHECK(islower((unsigned char) text[0]));
		CHECK(text[strlen(text) - 1] != '.');

		for (other = FENCE_TEMPLATE_OK; other < error; other++)
			CHECK(strcmp(text, fence_template_error_text(other)) != 0);
	}

	CHECK(strstr(fence_template_error_text(FENCE_TEMPLATE_LONG_LITERAL),
				 "512") != NULL);
	CHECK(fence_template_error_text((FenceTemplateError) 7) != NULL);
}

int
main(void)
{
	test_plain();
	test_columns();
	test_column_names();
	test_literal_braces();
	test_braces_in_names();
	test_multibyte();
	test_empty();
	test_open_brace();
	test_empty_column();
	test_long_column();
	test_long_literal();
	test_many_parts();
	test_sizes();
	test_error_texts();

	return check_summary();
}
