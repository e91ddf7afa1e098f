/*-------------------------------------------------------------------------
 *
 * template.h
 *	  Parser for resource templates such as 'stock-sync:{warehouse_id}'.
 *
 * Copyright (c) 2026, the pg_fence maintainers
 *
 * src/template.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_TEMPLATE_H
#define FENCE_TEMPLATE_H

/* A name that no column can have is an error of the template, not a lookup. */
#define FENCE_TEMPLATE_COLUMN_MAX	(NAMEDATALEN - 1)

/*
 * A resource name has at most this many bytes; a template with more literal
 * text could never make a valid one.
 */
#define FENCE_TEMPLATE_LITERAL_MAX	512

typedef struct FenceTemplatePart
{
	bool		is_column;		/* column name, or literal text? */
	int			len;			/* bytes in text, never zero */
	const char *text;			/* NUL-terminated, in the caller's buffer */
} FenceTemplatePart;

typedef enum FenceTemplateError
{
	FENCE_TEMPLATE_OK = 0,
	FENCE_TEMPLATE_EMPTY,
	FENCE_TEMPLATE_OPEN_BRACE,
	FENCE_TEMPLATE_EMPTY_COLUMN,
	FENCE_TEMPLATE_LONG_COLUMN,
	FENCE_TEMPLATE_LONG_LITERAL
} FenceTemplateError;

extern size_t fence_template_buffer_size(const char *source);
extern int	fence_template_max_parts(const char *source);
extern FenceTemplateError fence_template_parse(const char *source,
											   char *buffer,
											   FenceTemplatePart *parts,
											   int *nparts, int *errpos);
extern const char *fence_template_error_text(FenceTemplateError error);

#endif							/* FENCE_TEMPLATE_H */
