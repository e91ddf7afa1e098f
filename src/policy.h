/*-------------------------------------------------------------------------
 *
 * policy.h
 *	  What a guard demands, from the arguments of its trigger.
 *
 * IDENTIFICATION
 *	  src/policy.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_POLICY_H
#define FENCE_POLICY_H

#include "commands/trigger.h"
#include "present.h"
#include "template.h"

/* Against what a row is judged. */
typedef enum FenceMarks
{
	FENCE_MARKS_RESOURCE,		/* the mark of its resource */
	FENCE_MARKS_ROW,			/* the token in the row */
	FENCE_MARKS_BOTH
} FenceMarks;

/* A column of the template, bound to the relation. */
typedef struct FenceColumn
{
	AttrNumber	attnum;
	Oid			type;			/* base type of a domain */
	int16		typlen;
	bool		typbyval;
	FmgrInfo	output;
} FenceColumn;

/* The parts of a policy that are given as texts. */
typedef enum FencePolicyArgument
{
	FENCE_POLICY_RESOURCE,
	FENCE_POLICY_MARKS,
	FENCE_POLICY_TOKEN_COLUMN,
	FENCE_POLICY_LEASE,
	FENCE_POLICY_MODE,
	FENCE_POLICY_KEY_COLUMN,
	FENCE_POLICY_KEY_SCOPE,
	FENCE_POLICY_ON_DUPLICATE,
	FENCE_POLICY_ARGUMENTS		/* count */
} FencePolicyArgument;

typedef struct FencePolicy
{
	/* as given */
	const char *resource;
	const char *token_column;	/* or NULL */
	FenceMarks	marks;
	const char *lease;			/* who vouches for it, or NULL */
	bool		observe;		/* warn and let through */
	const char *key_column;		/* or NULL */
	const char *key_scope;		/* set if key_column is */
	bool		skip_duplicates;	/* else they are errors */

	/* derived */
	int			nparts;
	FenceTemplatePart *parts;
	bool		has_columns;

	/* bound to a relation */
	FenceColumn *columns;		/* one per part, unused for literal text */
	bool		always_fits;	/* can no name be empty or too long? */
	AttrNumber	token_attnum;	/* 0 if there is no token column */
	FenceColumn key;			/* attnum 0 if there is no key column */
	const FenceVerdict *problem;	/* why it cannot work, or NULL */
	AttrNumber	problem_attnum; /* the column that is to blame, or 0 */
} FencePolicy;

extern void fence_policy_init(void);
extern FencePolicy *fence_policy_make(const char *const *texts);
extern FencePolicy *fence_policy_of_arguments(Relation relation,
											  char *const *arguments,
											  int count);
extern const FenceVerdict *fence_policy_bind(FencePolicy *policy,
											 Relation relation,
											 AttrNumber *attnum);
extern char *fence_policy_write(const FencePolicy *policy);
extern List *fence_policy_parts(const char *argument);
extern const char *fence_policy_argument(char *const *arguments, int count,
										 FencePolicyArgument which);
extern const FencePolicy *fence_policy_cached(Relation relation,
											  const Trigger *trigger);
extern const FencePolicy *fence_policy_of_trigger(Relation relation,
												  const Trigger *trigger);

/* Are the tokens of this policy judged against fence.resource? */
static inline bool
fence_policy_presents(const FencePolicy *policy)
{
	return policy->marks != FENCE_MARKS_ROW || policy->lease != NULL;
}

#endif							/* FENCE_POLICY_H */
