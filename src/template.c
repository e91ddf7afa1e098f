/*-------------------------------------------------------------------------
 *
 * template.c
 *	  Parser for resource templates such as 'stock-sync:{warehouse_id}'.
 *
 * A template is literal text with names of columns in braces.
 *
 *	{name}		the value of a column.  The name is taken byte for byte: case
 *				counts, blanks count, double quotes mean nothing.
 *	}}			inside a placeholder: one closing brace of the name
 *	{{			outside: a literal opening brace
 *	} or }}		outside: a literal closing brace
 *
 * Doubled braces are taken as they come, from left to right.  Therefore "{{"
 * never opens a placeholder and "}}" never closes one: a name cannot begin
 * with an opening brace, and literal text behind a placeholder cannot begin
 * with a closing one.
 *
 * Every encoding that a server can have keeps the bytes of braces for braces
 * alone, so multi-byte text needs no care here.
 *
 * Nothing in this file calls the server: all memory is the caller's, and an
 * error is a return value.  That lets test/unit link the parser into ordinary
 * programs, with sanitizers and a fuzzer.  For the same reason there is no
 * Assert here: its failure branch lives in the server.
 *
 * Copyright (c) 2026, the pg_fence maintainers
 *
 * src/template.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "template.h"

static bool opens_placeholder(const char *s);
static FenceTemplateError read_column(const char **src, char **dst);
static FenceTemplateError read_literal(const char **src, char **dst,
									   int *room);


/*
 * Bytes of text buffer that fence_template_parse may need for this source.
 *
 * Each part costs a terminating NUL that the source does not have, but each
 * placeholder saves at least its opening and closing braces.  Literal parts
 * are merged, so there is at most one more of them than of placeholders, and
 * one byte beyond the length of the source is enough.  A placeholder that is
 * never closed saves one brace only, but gets no NUL either.
 */
size_t
fence_template_buffer_size(const char *source)
{
	return strlen(source) + 1;
}

/*
 * Number of parts that fence_template_parse may make of this source.
 *
 * This cannot overflow for a source that is a value of the server: those are
 * shorter than 1 GB.
 */
int
fence_template_max_parts(const char *source)
{
	int			braces = 0;

	for (; *source != '\0'; source++)
	{
		if (*source == '{')
			braces++;
	}

	/* literal text before, between and behind the placeholders */
	return 2 * braces + 1;
}

/*
 * Split a template into literal text and names of columns.
 *
 * The caller supplies buffer and parts, of the sizes that the two functions
 * above tell; the texts of the parts point into buffer, and the source is not
 * needed any more afterwards.  Literal parts never follow each other.
 *
 * Returns FENCE_TEMPLATE_OK and sets *nparts, which is at least 1; or returns
 * what is wrong and sets *errpos to the byte offset in source: that of the
 * opening brace if a placeholder is wrong, that of the first byte too many if
 * there is too much literal text.  After an error, buffer and parts have no
 * meaningful contents and *nparts is as it was.
 *
 * Whether the columns exist is not known here, nor whether the finished name
 * will have a valid length.
 */
FenceTemplateError
fence_template_parse(const char *source, char *buffer,
					 FenceTemplatePart *parts, int *nparts, int *errpos)
{
	const char *src = source;
	char	   *dst = buffer;
	int			room = FENCE_TEMPLATE_LITERAL_MAX;
	int			n = 0;

	if (*source == '\0')
	{
		*errpos = 0;
		return FENCE_TEMPLATE_EMPTY;
	}

	while (*src != '\0')
	{
		FenceTemplatePart *part = &parts[n++];
		char	   *text = dst;
		FenceTemplateError error;

		part->is_column = opens_placeholder(src);
		if (part->is_column)
			error = read_column(&src, &dst);
		else
			error = read_literal(&src, &dst, &room);

		if (error != FENCE_TEMPLATE_OK)
		{
			*errpos = (int) (src - source);
			return error;
		}

		part->text = text;
		part->len = (int) (dst - text);
		*dst++ = '\0';
	}

	*nparts = n;
	return FENCE_TEMPLATE_OK;
}

/*
 * What is wrong, in words that can stand in the middle of a message.
 */
const char *
fence_template_error_text(FenceTemplateError error)
{
	/* no default branch, so that the compiler tells when a value is missing */
	switch (error)
	{
		case FENCE_TEMPLATE_OK:
			return "no error";
		case FENCE_TEMPLATE_EMPTY:
			return "empty template";
		case FENCE_TEMPLATE_OPEN_BRACE:
			return "open brace without a closing one";
		case FENCE_TEMPLATE_EMPTY_COLUMN:
			return "no column name between the braces";
		case FENCE_TEMPLATE_LONG_COLUMN:
			return "column name longer than any identifier can be";
		case FENCE_TEMPLATE_LONG_LITERAL:
			return "more than " CppAsString2(FENCE_TEMPLATE_LITERAL_MAX) " bytes of literal text";
	}

	return "unrecognized error";
}

/*
 * Does a placeholder begin here?  A brace at the very end counts as one, so
 * that it is reported as not closed.
 */
static bool
opens_placeholder(const char *s)
{
	return s[0] == '{' && s[1] != '{';
}

/*
 * Copy the name out of the placeholder that begins at *src.
 *
 * On success *src is behind the closing brace and *dst behind the name, which
 * is not terminated yet.  On error *src still is at the opening brace.
 */
static FenceTemplateError
read_column(const char **src, char **dst)
{
	const char *in = *src + 1;
	char	   *out = *dst;

	/*
	 * Look for the closing brace before judging the name: when one is
	 * missing, everything up to the end of the template seems to be the name,
	 * and to complain about the length of that would mislead.
	 */
	for (;;)
	{
		if (*in == '\0')
			return FENCE_TEMPLATE_OPEN_BRACE;

		if (*in == '}')
		{
			in++;
			if (*in != '}')
				break;
		}
		*out++ = *in++;
	}

	if (out == *dst)
		return FENCE_TEMPLATE_EMPTY_COLUMN;
	if (out - *dst > FENCE_TEMPLATE_COLUMN_MAX)
		return FENCE_TEMPLATE_LONG_COLUMN;

	*src = in;
	*dst = out;
	return FENCE_TEMPLATE_OK;
}

/*
 * Copy literal text from *src up to the next placeholder or to the end.
 *
 * *room is the number of bytes of literal text that the template may still
 * have.  On success *src is behind the text that was read and *dst behind its
 * copy, which is not terminated yet.  On error *src is at the first byte for
 * which there was no room.
 */
static FenceTemplateError
read_literal(const char **src, char **dst, int *room)
{
	const char *in = *src;
	char	   *out = *dst;
	FenceTemplateError error = FENCE_TEMPLATE_OK;

	while (*in != '\0' && !opens_placeholder(in))
	{
		if (*room == 0)
		{
			error = FENCE_TEMPLATE_LONG_LITERAL;
			break;
		}
		(*room)--;

		/* an opening brace is doubled if we get here, a closing one may be */
		if ((in[0] == '{' || in[0] == '}') && in[1] == in[0])
			in++;
		*out++ = *in++;
	}

	*src = in;
	*dst = out;
	return error;
}
