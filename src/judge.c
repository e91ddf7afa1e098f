/*-------------------------------------------------------------------------
 *
 * judge.c
 *	  What speaks against a token, by the row of its resource.
 *
 * Nothing here knows what the transaction has presented or locked; the same
 * questions are asked when a token is presented and before the commit.
 *
 * IDENTIFICATION
 *	  src/judge.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "errors.h"
#include "judge.h"

/* From this distance on, a token below the mark hints at a reset source. */
#define FAR_BELOW	100

static const char *
mark_detail(const FenceRow *row)
{
	if (!row->found)
		return psprintf("The resource is not known, or was forgotten; then tokens up to %lld are too old.",
						(long long) row->mark);
	if (row->mark_holder != NULL)
		return psprintf("Token %lld was accepted from holder \"%s\" at %s.",
						(long long) row->mark, row->mark_holder,
						timestamptz_to_str(row->marked_at));
	return psprintf("Token %lld was accepted at %s.",
					(long long) row->mark, timestamptz_to_str(row->marked_at));
}

static const FenceVerdict *
stale(const FenceName *name, int64 token, int64 mark, const char *detail,
	  const char *hint)
{
	FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_FENCE_STALE_TOKEN,
							psprintf("fencing token %lld for resource \"%.*s\" is stale",
									 (long long) token, name->len, name->data),
							detail, hint);
	return fence_verdict_about(verdict, name, token, mark);
}

/*
 * PF001 against the mark of the resource.
 *
 * A token that was not issued here and is far below the mark: its source has
 * probably lost its memory, and will count up from 1 until somebody helps.
 */
const FenceVerdict *
fence_stale(const FenceName *name, int64 token, const FenceRow *row)
{
	const char *hint = "Another holder has taken over. Stop, and do not retry with this token.";

	if (!row->found)
		hint = "Acquire the resource again; or, if the tokens come from elsewhere, move their source above that one.";
	else if (row->token == 0 && row->mark - token >= FAR_BELOW)
		hint = "The source of the tokens may have been reset. If so, move it above the mark; nothing lowers a mark.";
	return stale(name, token, row->mark, mark_detail(row), hint);
}

/*
 * PF001 against what this transaction itself presented before.
 */
const FenceVerdict *
fence_superseded(const FenceName *name, int64 token, int64 before)
{
	return stale(name, Min(token, before), Max(token, before),
				 psprintf("This transaction has presented token %lld before, and now %lld.",
						  (long long) before, (long long) token),
				 "Work done under one token cannot be committed under another. Start a new transaction.");
}

/*
 * PF001 before the commit: the mark is about to rise.
 */
const FenceVerdict *
fence_overtaken(const FenceName *name, int64 token)
{
	return stale(name, token, 0,
				 "Another transaction is presenting a newer token for this resource.",
				 "Another holder is taking over. Stop, and do not retry with this token.");
}

/*
 * PF001 for want of a mark to judge by: the row was deleted by hand.
 */
const FenceVerdict *
fence_row_missing(const FenceName *name, int64 token)
{
	return stale(name, token, 0,
				 "The row of the resource has disappeared from fence.resource.",
				 "Rows of fence.resource must not be deleted by hand.");
}

/*
 * 55000: nothing is left to judge by.
 */
const FenceVerdict *
fence_table_missing(const FenceName *name, int64 token)
{
	FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
							psprintf("fencing token %lld for resource \"%.*s\" cannot be judged any more",
									 (long long) token, name->len, name->data),
							"Extension pg_fence has been dropped since it was presented.",
							"Drop the extension in a transaction that presents no token.");
	return fence_verdict_about(verdict, name, token, 0);
}

/*
 * PF004: above the last number issued here.
 */
const FenceVerdict *
fence_never_issued(const FenceName *name, int64 token, const FenceRow *row)
{
	FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_FENCE_NEVER_ISSUED,
							psprintf("fencing token %lld for resource \"%.*s\" was never issued",
									 (long long) token, name->len, name->data),
							psprintf("The last token issued and committed is %lld, the high-water mark is %lld.",
									 (long long) row->token,
									 (long long) row->mark),
							"Present the token that fence.acquire() returned, after its transaction has committed.");
	return fence_verdict_about(verdict, name, token, row->mark);
}

static const char *
lease_detail(int64 token, const FenceRow *row)
{
	if (row->holder == NULL || row->token != token)
		return psprintf("Token %lld is not that of a lease granted by fence.acquire().",
						(long long) token);
	if (row->released)
		return psprintf("The lease of token %lld was released at %s.",
						(long long) token,
						timestamptz_to_str(row->released_at));
	if (row->home != fence_home())
		return psprintf("The lease of token %lld was granted in another database and ended with the copy.",
						(long long) token);
	return psprintf("The lease of token %lld expired at %s.",
					(long long) token, timestamptz_to_str(row->expires_at));
}

/*
 * PF005: the lease of the token keeps nobody out.
 */
const FenceVerdict *
fence_not_held(const FenceName *name, int64 token, const FenceRow *row)
{
	FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_FENCE_LEASE_NOT_HELD,
							psprintf("lease on resource \"%.*s\" is not held",
									 name->len, name->data),
							lease_detail(token, row),
							"Stop, and acquire the resource again.");
	return fence_verdict_about(verdict, name, token, row->mark);
}

/*
 * PF003: one number from two issuers shows as two holders.  An unknown holder
 * on either side proves nothing.
 */
const FenceVerdict *
fence_judge_holder(const FenceName *name, int64 token, const char *holder,
				   const char *recorded)
{
	FenceVerdict *verdict;

	if (holder == NULL || recorded == NULL || strcmp(holder, recorded) == 0)
		return NULL;
	verdict = fence_verdict(ERRCODE_FENCE_OTHER_HOLDER,
							psprintf("fencing token %lld for resource \"%.*s\" belongs to another holder",
									 (long long) token, name->len, name->data),
							psprintf("It is recorded for holder \"%s\" and was presented by \"%s\".",
									 recorded, holder),
							"Two issuers have given out the same number. Stop, and find out which.");
	return fence_verdict_about(verdict, name, token, token);
}

/*
 * PF005 unless the lease of the token is live.
 */
const FenceVerdict *
fence_judge_lease(const FenceName *name, int64 token, const FenceRow *row)
{
	if (row->token != token || !fence_lease_live(row, GetCurrentTimestamp()))
		return fence_not_held(name, token, row);
	return NULL;
}
