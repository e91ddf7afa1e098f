/*-------------------------------------------------------------------------
 *
 * canonical_form.h
 *	  Canonical bytes of a JSON value.
 *
 * IDENTIFICATION
 *	  src/canonical_form.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_CANONICAL_FORM_H
#define FENCE_CANONICAL_FORM_H

/* Takes the bytes as they are made, in pieces of any size. */
typedef void (*FenceCanonicalSink) (void *arg, const char *bytes, size_t len);

typedef struct FenceCanonicalForm
{
	FenceCanonicalSink sink;
	void	   *arg;			/* passed to sink */
	size_t		used;			/* bytes in buffer */
	char		buffer[256];	/* collects small pieces */
} FenceCanonicalForm;

extern void fence_canonical_begin(FenceCanonicalForm *form,
								  FenceCanonicalSink sink, void *arg);
extern void fence_canonical_null(FenceCanonicalForm *form);
extern void fence_canonical_bool(FenceCanonicalForm *form, bool value);
extern bool fence_canonical_number(FenceCanonicalForm *form,
								   const char *wire, size_t len);
extern void fence_canonical_string(FenceCanonicalForm *form,
								   const char *text, size_t len);
extern void fence_canonical_array(FenceCanonicalForm *form, size_t elements);
extern void fence_canonical_object(FenceCanonicalForm *form, size_t pairs);
extern void fence_canonical_end(FenceCanonicalForm *form);

#endif							/* FENCE_CANONICAL_FORM_H */
