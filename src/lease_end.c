/*-------------------------------------------------------------------------
 *
 * lease_end.c
 *	  What leases leave behind: counters in its row, statistics, history.
 *
 * Called before the row of the resource is changed, and its counters are
 * written with that change: they cost no write of their own.
 *
 * IDENTIFICATION
 *	  src/lease_end.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "history.h"
#include "lease_end.h"

/*
 * The row's lease, which has not ended before, ends now; or has run out
 * unnoticed.
 */
void
fence_lease_ended(const FenceName *name, FenceRow *row, FenceLeaseEnd end,
				  TimestampTz now)
{
	/* Not before it began, should the clock have been set back. */
	TimestampTz ended_at = Max(row->acquired_at, Min(now, row->expires_at));
	int64		held = ended_at - row->acquired_at;

	if (end == FENCE_LEASE_TAKEN_OVER)
		row->takeovers++;
	row->hold_total += held;
	row->hold_max = Max(row->hold_max, held);
	fence_stats_lease_end(name, end, held);
	fence_history_add(name, row, end, ended_at);
}

/* The lease before, if there is one that nobody has ended. */
static void
lease_replaced(const FenceName *name, FenceRow *row, const char *holder,
			   TimestampTz now)
{
	FenceLeaseEnd end;

	if (row->holder == NULL || row->released)
		return;
	if (fence_lease_live(row, now))
		end = FENCE_LEASE_HANDED_OVER;
	else if (strcmp(row->holder, holder) == 0)
		end = FENCE_LEASE_EXPIRED;
	else
		end = FENCE_LEASE_TAKEN_OVER;
	fence_lease_ended(name, row, end, now);
}

/*
 * The resource of the row is granted to a holder.
 */
void
fence_lease_granted(const FenceName *name, FenceRow *row, const char *holder,
					TimestampTz now)
{
	lease_replaced(name, row, holder, now);
	row->acquisitions++;
	fence_stats_grant(name);
}
