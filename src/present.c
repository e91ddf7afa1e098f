/*-------------------------------------------------------------------------
 *
 * present.c
 *	  Tokens presented in this transaction, and the commit-time fence.
 *
 * A presented token belongs to the transaction, never to the session, so
 * that a pooled connection cannot hand it on.  Each resource has a stack of
 * presentations, the newest on top; an entry carries the subtransaction that
 * made it, so that ROLLBACK TO restores exactly what was presented before.
 *
 * A token is judged twice: when it is presented, and again before the
 * transaction commits or is prepared.  The second time decides.  The commit
 * lock is taken first and the mark read with a snapshot taken after it: any
 * newer token was either committed before our lock, and then the snapshot
 * shows it, or it has to wait until our commit is visible.
 *
 * The commit lock is never waited for.  The newer holder may be waiting for
 * a row that this transaction has locked, and an older holder must learn
 * that it is too late at once, however long the newer one takes.
 *
 * IDENTIFICATION
 *	  src/present.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "args.h"
#include "errors.h"
#include "present.h"

PG_FUNCTION_INFO_V1(fence_check);

/*
 * How long a commit lock is tried for when nobody can be seen to hold a
 * conflicting one, in milliseconds.  Its last holder has ended and is about
 * to release it, or somebody waits to take over.
 */
#define COMMIT_LOCK_TRIES	100

/* From this distance on, a token below the mark hints at a reset source. */
#define FAR_BELOW			100

/* One presentation; they live as long as the transaction. */
typedef struct Presentation
{
	SubTransactionId subid;		/* whose rollback takes it back */
	int64		token;
	const char *holder;			/* known holder of the token, or NULL */
	bool		lease_required; /* fence.resource must show it live */
	struct Presentation *below;
} Presentation;

typedef struct PresentedResource
{
	FenceName	name;
	Presentation *top;			/* NULL once all are rolled back */
	char		status;			/* of simplehash */
} PresentedResource;

#define SH_PREFIX presented
#define SH_ELEMENT_TYPE PresentedResource
#define SH_KEY_TYPE FenceName
#define SH_KEY name
#define SH_HASH_KEY(tb, name) ((uint32) (name).key)
#define SH_EQUAL(tb, a, b) \
	((a).key == (b).key && (a).len == (b).len && \
	 memcmp((a).data, (b).data, (a).len) == 0)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Both NULL unless this transaction has presented something. */
static MemoryContext presented_cxt = NULL;
static presented_hash *presented = NULL;

/* Changes whenever the set of presented tokens may have (backend). */
static uint64 generation = 0;

/*
 * The lease argument of the SQL functions.
 */
FenceLease
fence_lease_parse(const char *lease)
{
	if (lease == NULL)
		return FENCE_LEASE_NONE;
	if (strcmp(lease, "postgres") == 0)
		return FENCE_LEASE_POSTGRES;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("unrecognized lease: \"%s\"", lease),
			 errhint("Use \"postgres\" for leases of fence.acquire(), or NULL if only the order of tokens counts.")));
}

/* Adds table, column and schema to an error, if the token came from there. */
int
fence_site_fields(const FenceSite *site)
{
	if (site == NULL || site->relation == NULL)
		return 0;
	if (site->attnum != InvalidAttrNumber)
		return errtablecol(site->relation, site->attnum);
	return errtable(site->relation);
}

static int
mark_detail(const FenceRow *row)
{
	if (row->mark_holder != NULL)
		return errdetail("Token %lld was accepted from holder \"%s\" at %s.",
						 (long long) row->mark, row->mark_holder,
						 timestamptz_to_str(row->marked_at));
	return errdetail("Token %lld was accepted at %s.",
					 (long long) row->mark,
					 timestamptz_to_str(row->marked_at));
}

/*
 * A token that was not issued here and is far below the mark: its source has
 * probably lost its memory, and will count up from 1 until somebody helps.
 */
static int
stale_hint(int64 token, const FenceRow *row)
{
	if (row->token == 0 && row->mark - token >= FAR_BELOW)
		return errhint("The source of the tokens may have been reset. If so, move it above the mark; nothing lowers a mark.");
	return errhint("Another holder has taken over. Stop, and do not retry with this token.");
}

/*
 * PF001 against the mark of the resource.
 */
void
fence_stale_error(const FenceName *name, int64 token, const FenceRow *row,
				  const FenceSite *site)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_STALE_TOKEN),
			 errmsg("fencing token %lld for resource \"%.*s\" is stale",
					(long long) token, name->len, name->data),
			 mark_detail(row),
			 stale_hint(token, row),
			 fence_site_fields(site)));
}

/*
 * PF001 against what this transaction itself presented before.
 */
static void
superseded_error(const FenceName *name, int64 token, int64 before,
				 const FenceSite *site)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_STALE_TOKEN),
			 errmsg("fencing token %lld for resource \"%.*s\" is stale",
					(long long) Min(token, before), name->len, name->data),
			 errdetail("This transaction has presented token %lld before, and now %lld.",
					   (long long) before, (long long) token),
			 errhint("Work done under one token cannot be committed under another. Start a new transaction."),
			 fence_site_fields(site)));
}

static void
never_issued_error(const FenceName *name, int64 token, const FenceRow *row,
				   const FenceSite *site)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_NEVER_ISSUED),
			 errmsg("fencing token %lld for resource \"%.*s\" was never issued",
					(long long) token, name->len, name->data),
			 errdetail("The last token issued and committed is %lld, the high-water mark is %lld.",
					   (long long) row->token, (long long) row->mark),
			 errhint("Present the token that fence.acquire() returned, after its transaction has committed."),
			 fence_site_fields(site)));
}

static int
lease_detail(int64 token, const FenceRow *row)
{
	if (row->holder == NULL || row->token != token)
		return errdetail("Token %lld is not that of a lease granted by fence.acquire().",
						 (long long) token);
	if (row->released)
		return errdetail("The lease of token %lld was released at %s.",
						 (long long) token,
						 timestamptz_to_str(row->released_at));
	if (row->home != fence_home())
		return errdetail("The lease of token %lld was granted in another database and ended with the copy.",
						 (long long) token);
	return errdetail("The lease of token %lld expired at %s.",
					 (long long) token, timestamptz_to_str(row->expires_at));
}

static void
lease_error(const FenceName *name, int64 token, const FenceRow *row,
			const FenceSite *site)
{
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_LEASE_NOT_HELD),
			 errmsg("lease on resource \"%.*s\" is not held",
					name->len, name->data),
			 lease_detail(token, row),
			 errhint("Stop, and acquire the resource again."),
			 fence_site_fields(site)));
}

/*
 * One number from two issuers shows as two holders.  An unknown holder on
 * either side proves nothing.
 */
static void
check_holder(const FenceName *name, int64 token, const char *holder,
			 const char *recorded, const FenceSite *site)
{
	if (holder == NULL || recorded == NULL || strcmp(holder, recorded) == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_OTHER_HOLDER),
			 errmsg("fencing token %lld for resource \"%.*s\" belongs to another holder",
					(long long) token, name->len, name->data),
			 errdetail("It is recorded for holder \"%s\" and was presented by \"%s\".",
					   recorded, holder),
			 errhint("Two issuers have given out the same number. Stop, and find out which."),
			 fence_site_fields(site)));
}

static void
check_lease(const FenceName *name, int64 token, const FenceRow *row,
			const FenceSite *site)
{
	if (row->token != token || !fence_lease_live(row, GetCurrentTimestamp()))
		lease_error(name, token, row, site);
}

/* The newest presentation for the resource, or NULL. */
static Presentation *
find_presentation(const FenceName *name)
{
	PresentedResource *entry;

	if (presented == NULL)
		return NULL;
	entry = presented_lookup(presented, *name);
	return entry != NULL ? entry->top : NULL;
}

static void
remember(const FenceName *name, int64 token, const char *holder,
		 bool lease_required)
{
	MemoryContext oldcxt;
	PresentedResource *entry;
	Presentation *presentation;
	bool		found;

	if (presented == NULL)
	{
		presented_cxt = AllocSetContextCreate(TopTransactionContext,
											  "pg_fence presented tokens",
											  ALLOCSET_SMALL_SIZES);
		presented = presented_create(presented_cxt, 16, NULL);
	}
	oldcxt = MemoryContextSwitchTo(presented_cxt);
	presentation = palloc(sizeof(Presentation));
	presentation->subid = GetCurrentSubTransactionId();
	presentation->token = token;
	presentation->holder = holder != NULL ? pstrdup(holder) : NULL;
	presentation->lease_required = lease_required;

	entry = presented_lookup(presented, *name);
	if (entry == NULL)
	{
		FenceName	copy = *name;

		copy.data = memcpy(palloc(name->len), name->data, name->len);
		entry = presented_insert(presented, copy, &found);
		entry->top = NULL;
	}
	presentation->below = entry->top;
	entry->top = presentation;
	MemoryContextSwitchTo(oldcxt);
	generation++;
}

/*
 * Under REPEATABLE READ and SERIALIZABLE the snapshot of the work must be
 * younger than the takeover lock, or the last commit of the older holder is
 * missed.  Holding that lock without having presented anything means that
 * the token was acquired in this transaction.
 */
static void
check_snapshot_younger(const FenceName *name, const FenceSite *site)
{
	if (!IsolationUsesXactSnapshot() ||
		!fence_lock_held(name, FENCE_LOCK_TAKEOVER))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("resource \"%.*s\" was acquired in this transaction",
					name->len, name->data),
			 errdetail("The transaction's snapshot is older than the acquisition and may miss the last commit of the previous holder."),
			 errhint("At this isolation level, acquire in a transaction of its own and present the token in the next one."),
			 fence_site_fields(site)));
}

static void
present_equal(const FenceName *name, int64 token, const char *holder,
			  FenceLease lease, const FenceRow *row,
			  const Presentation *before, const FenceSite *site)
{
	/* Raised since by somebody else: our earlier work is late. */
	if (before != NULL)
		superseded_error(name, token, before->token, site);
	check_holder(name, token, holder, row->mark_holder, site);
	if (lease == FENCE_LEASE_POSTGRES)
		check_lease(name, token, row, site);
	check_snapshot_younger(name, site);

	fence_lock(name, FENCE_LOCK_PRESENCE);
	remember(name, token, row->mark_holder ? row->mark_holder : holder,
			 lease == FENCE_LEASE_POSTGRES);
}

/*
 * Can a token above the mark become the mark?  Not where tokens are issued
 * here: then it is a made-up number.
 */
static void
check_may_raise(const FenceName *name, int64 token, FenceLease lease,
				const FenceRow *row, const FenceSite *site)
{
	if (row->token > 0)
		never_issued_error(name, token, row, site);
	if (lease == FENCE_LEASE_POSTGRES)
		lease_error(name, token, row, site);
}

/*
 * The token was above the mark as read without a lock.  The gate may be
 * waited for; after it the row is read again, because a parallel session of
 * the same holder may have presented the same token meanwhile.  Then the
 * gate is given back at once, so that equal tokens do not queue up.
 */
static void
present_higher(const FenceName *name, int64 token, const char *holder,
			   FenceLease lease, const Presentation *before,
			   const FenceSite *site)
{
	FenceRow	row;

	fence_lock(name, FENCE_LOCK_GATE);
	fence_row_read(name, &row);
	if (token <= row.mark)
	{
		fence_unlock(name, FENCE_LOCK_GATE);
		if (token < row.mark)
			fence_stale_error(name, token, &row, site);
		present_equal(name, token, holder, lease, &row, before, site);
		return;
	}
	check_may_raise(name, token, lease, &row, site);

	fence_lock(name, FENCE_LOCK_TAKEOVER);
	fence_present_check_move(name, &row);
	row.mark = token;
	row.mark_holder = unconstify(char *, holder);
	row.marked_at = GetCurrentTimestamp();
	fence_row_write(name, &row);

	fence_lock(name, FENCE_LOCK_PRESENCE);
	remember(name, token, holder, false);
}

/* Presented before in this transaction, with the same number. */
static void
present_again(const FenceName *name, int64 token, const char *holder,
			  FenceLease lease, const Presentation *before,
			  const FenceSite *site)
{
	check_holder(name, token, holder, before->holder, site);
	if (lease == FENCE_LEASE_POSTGRES && !before->lease_required)
	{
		FenceRow	row;

		fence_row_read(name, &row);
		check_lease(name, token, &row, site);
		remember(name, token, before->holder, true);
	}
}

/*
 * Presents a token for a resource in this transaction: judges it now, and
 * has it judged again at commit.  Raises if it is refused.
 */
void
fence_present(const FenceName *name, int64 token, const char *holder,
			  FenceLease lease, const FenceSite *site)
{
	Presentation *before = find_presentation(name);
	FenceRow	row;

	if (before != NULL && token == before->token)
	{
		present_again(name, token, holder, lease, before, site);
		return;
	}
	if (before != NULL && token < before->token)
		superseded_error(name, token, before->token, site);

	fence_row_read(name, &row);
	if (token < row.mark)
		fence_stale_error(name, token, &row, site);
	if (token == row.mark)
		present_equal(name, token, holder, lease, &row, before, site);
	else
	{
		check_may_raise(name, token, lease, &row, site);
		present_higher(name, token, holder, lease, before, site);
	}
}

/*
 * The token presented for the resource in this transaction, 0 if none is.
 */
int64
fence_presented(const FenceName *name)
{
	Presentation *presentation = find_presentation(name);

	return presentation != NULL ? presentation->token : 0;
}

/*
 * Does the transaction stand on any token?
 */
bool
fence_presented_any(void)
{
	presented_iterator iterator;
	PresentedResource *entry;

	if (presented == NULL)
		return false;
	presented_start_iterate(presented, &iterator);
	while ((entry = presented_iterate(presented, &iterator)) != NULL)
	{
		if (entry->top != NULL)
			return true;
	}
	return false;
}

/*
 * Changes with every change of the presented tokens, so that an answer of
 * fence_presented() can be kept for as long as this stays.
 */
uint64
fence_present_generation(void)
{
	return generation;
}

/*
 * Moving up inside a transaction, by a higher token or by acquiring again:
 * allowed only while the mark, read under the takeover lock, is still the
 * token presented before.  Else somebody else was in between, and what this
 * transaction did under its old token must not commit after that.
 */
void
fence_present_check_move(const FenceName *name, const FenceRow *row)
{
	Presentation *before = find_presentation(name);

	Assert(fence_lock_held(name, FENCE_LOCK_TAKEOVER));
	if (before != NULL && before->token != row->mark)
		fence_stale_error(name, before->token, row, NULL);
}

/*
 * The resource was acquired again, in a transaction that already stands on
 * an older token for it: from now on it stands on the new one.  A
 * transaction that has presented nothing still has to.
 */
void
fence_present_moved(const FenceName *name, int64 token, const char *holder)
{
	Presentation *before = find_presentation(name);

	if (before != NULL)
		remember(name, token, holder, before->lease_required);
}

/*
 * Takes the commit lock, without waiting for anybody who is still at work.
 */
static void
take_commit_lock(const FenceName *name, int64 token)
{
	int			tries;

	/* We raise the mark ourselves; asking for less might fail. */
	if (fence_lock_held(name, FENCE_LOCK_TAKEOVER))
		return;

	for (tries = 0; tries < COMMIT_LOCK_TRIES; tries++)
	{
		if (fence_lock_nowait(name, FENCE_LOCK_COMMIT))
			return;
		if (fence_lock_contested(name, FENCE_LOCK_COMMIT))
			break;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000L);
	}
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_STALE_TOKEN),
			 errmsg("fencing token %lld for resource \"%.*s\" is stale",
					(long long) token, name->len, name->data),
			 errdetail("Another transaction is presenting a newer token for this resource."),
			 errhint("Another holder is taking over. Stop, and do not retry with this token.")));
}

static void
judge_at_commit(const PresentedResource *entry, Snapshot snapshot,
				TimestampTz now)
{
	const Presentation *top = entry->top;
	FenceRow	row;

	fence_row_read_at(&entry->name, snapshot, &row);

	/*
	 * A row that is gone was deleted behind our back: there is no mark to
	 * judge by.
	 */
	if (!row.found)
		ereport(ERROR,
				(errcode(ERRCODE_FENCE_STALE_TOKEN),
				 errmsg("fencing token %lld for resource \"%.*s\" cannot be judged",
						(long long) top->token,
						entry->name.len, entry->name.data),
				 errdetail("The row of the resource has disappeared from fence.resource."),
				 errhint("Rows of fence.resource must not be deleted by hand.")));
	if (top->token < row.mark)
		fence_stale_error(&entry->name, top->token, &row, NULL);
	if (top->lease_required &&
		(row.token != top->token || !fence_lease_live_at_commit(&row, now)))
		lease_error(&entry->name, top->token, &row, NULL);
}

static int
compare_lock_keys(const void *a, const void *b)
{
	uint64		left = (*(PresentedResource *const *) a)->name.key;
	uint64		right = (*(PresentedResource *const *) b)->name.key;

	return left < right ? -1 : left > right ? 1 : 0;
}

/*
 * Before commit and before PREPARE: judges every presented token again.
 *
 * All locks first, in one order, then one snapshot for all: it must be taken
 * after the lock of whatever is read with it.  The locks stay until the
 * commit is visible to others; PREPARE hands them to the prepared
 * transaction.
 */
static void
judge_all_at_commit(void)
{
	PresentedResource **entries;
	PresentedResource *entry;
	presented_iterator iterator;
	Snapshot	snapshot;
	TimestampTz now;
	int			count = 0;
	int			i;

	entries = MemoryContextAlloc(presented_cxt,
								 presented->members * sizeof(*entries));
	presented_start_iterate(presented, &iterator);
	while ((entry = presented_iterate(presented, &iterator)) != NULL)
	{
		if (entry->top != NULL)
			entries[count++] = entry;
	}
	if (count == 0)
		return;
	qsort(entries, count, sizeof(*entries), compare_lock_keys);

	for (i = 0; i < count; i++)
		take_commit_lock(&entries[i]->name, entries[i]->top->token);

	snapshot = RegisterSnapshot(GetLatestSnapshot());
	now = GetCurrentTimestamp();
	for (i = 0; i < count; i++)
		judge_at_commit(entries[i], snapshot, now);
	UnregisterSnapshot(snapshot);
}

static void
xact_callback(XactEvent event, void *arg)
{
	if (presented == NULL)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			judge_all_at_commit();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			/* The memory goes with the transaction. */
			presented = NULL;
			presented_cxt = NULL;
			generation++;
			break;
		default:
			break;
	}
}

/*
 * Gives the presentations of a subtransaction to its parent, or takes them
 * back.
 */
static void
subxact_callback(SubXactEvent event, SubTransactionId subid,
				 SubTransactionId parent, void *arg)
{
	presented_iterator iterator;
	PresentedResource *entry;

	if (presented == NULL ||
		(event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB))
		return;
	presented_start_iterate(presented, &iterator);
	while ((entry = presented_iterate(presented, &iterator)) != NULL)
	{
		if (event == SUBXACT_EVENT_COMMIT_SUB)
		{
			Presentation *item = entry->top;

			for (; item != NULL && item->subid == subid; item = item->below)
				item->subid = parent;
		}
		else
		{
			while (entry->top != NULL && entry->top->subid == subid)
				entry->top = entry->top->below;
		}
	}
	generation++;
}

/*
 * Once per backend.
 */
void
fence_present_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}

/*
 * fence.check(resource text, token bigint, holder text, lease text)
 *
 * True, or an error; see fence_present().
 */
Datum
fence_check(PG_FUNCTION_ARGS)
{
	FenceName	name;
	int64		token;
	char	   *holder;
	FenceLease	lease;

	fence_prevent_read_only("fence.check()");
	name = fence_arg_name(fcinfo, 0);
	token = fence_arg_token(fcinfo, 1);
	holder = fence_arg_text(fcinfo, 2, "holder", FENCE_RESOURCE_MAX, true);
	lease = fence_lease_parse(fence_arg_text(fcinfo, 3, "lease", NAMEDATALEN,
											 true));

	fence_present(&name, token, holder, lease, NULL);
	PG_RETURN_BOOL(true);
}
