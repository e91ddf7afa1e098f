/*-------------------------------------------------------------------------
 *
 * present.c
 *	  Tokens presented in this transaction, and the commit-time fence.
 *
 * A presented token belongs to the transaction, never to the session, so
 * that a pooled connection cannot hand it on.  Each resource has a stack of
 * presentations, the newest on top; an entry carries the subtransaction that
 * made it, so that ROLLBACK TO restores exactly what was presented before.
 * All of them are in one list, too, newest first: to end a subtransaction
 * costs what it has presented, however much the transaction has.
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
#include "judge.h"
#include "present.h"
#include "redis_lease.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(fence_check);

/*
 * How long a commit lock is tried for when nobody can be seen to hold a
 * conflicting one, in milliseconds.  Its last holder has ended and is about
 * to release it, or somebody waits to take over.
 */
#define COMMIT_LOCK_TRIES	100

/* What a server has said in this transaction about a lease of the resource. */
typedef struct Answer
{
	FenceRedis *redis;			/* as whoever presented the token sees it */
	const char *server;
	const char *holder;
	const FenceVerdict *verdict;	/* NULL: it stands, or is asked at commit */
	struct Answer *next;
} Answer;

/* On whose word a presentation stands. */
typedef struct Voucher
{
	const Answer *answer;
	bool		observed;		/* at commit, only warn */
	const struct Voucher *next;
} Voucher;

/* One presentation. */
typedef struct Presentation
{
	FenceName	name;
	SubTransactionId subid;		/* whose rollback takes it back */
	int64		token;
	const char *holder;			/* known holder of the token, or NULL */
	bool		named;			/* by this transaction, not only on record */
	int			demands;		/* what is judged at commit, see below */
	const Voucher *vouchers;	/* servers that may be asked again then */
	FenceVersion version;		/* of the row that has it as mark, if known */
	struct Presentation *below; /* the one before for the resource */
	struct Presentation *older; /* the one before for any */
} Presentation;

/*
 * Who presents a token may demand that it is judged at commit, or only want
 * to know; the same for the lease.  Once demanded, always demanded.
 */
#define DEMAND_ORDER		1
#define DEMAND_LEASE		2
#define OBSERVE_ORDER		4
#define OBSERVE_LEASE		8
#define ANY_LEASE			(DEMAND_LEASE | OBSERVE_LEASE)

typedef struct PresentedResource
{
	FenceName	name;
	Presentation *top;			/* NULL once all are rolled back */
	Answer	   *answers;
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

/*
 * NULL unless this transaction has presented something.  All of it lives in
 * TopTransactionContext, so that few presentations need no memory of their
 * own.
 */
static presented_hash *presented = NULL;
static Presentation *newest = NULL;

/* So many resources before the table grows. */
#define PRESENTED_FEW		4

/* Changes whenever the set of presented tokens may have (backend). */
static uint64 generation = 0;

static bool
lease_in_postgres(const char *lease)
{
	return lease != NULL && strcmp(lease, FENCE_LEASE_POSTGRES) == 0;
}

/*
 * Does a lease argument name a server outside?
 */
bool
fence_lease_in_store(const char *lease)
{
	return lease != NULL && !lease_in_postgres(lease);
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

/* The entry of the resource, made if there is none. */
static PresentedResource *
presented_entry(const FenceName *name)
{
	PresentedResource *entry;
	FenceName	copy = *name;
	bool		found;

	if (presented == NULL)
		presented = presented_create(TopTransactionContext, PRESENTED_FEW,
									 NULL);
	entry = presented_lookup(presented, *name);
	if (entry == NULL)
	{
		copy.data = memcpy(MemoryContextAlloc(TopTransactionContext,
											  name->len),
						   name->data, name->len);
		entry = presented_insert(presented, copy, &found);
		entry->top = NULL;
		entry->answers = NULL;
	}
	return entry;
}

/* Under which name a server knows the lease of this token. */
static const char *
stored_holder(const FenceToken *token, const FenceRow *row)
{
	if (row->token == token->number && row->lease != NULL &&
		strcmp(row->lease, token->lease) == 0)
		return row->lease_value;
	return token->holder;
}

static const FenceVerdict *
no_holder(const FenceToken *token)
{
	FenceVerdict *verdict;

	verdict = fence_verdict(ERRCODE_FENCE_NO_TOKEN,
							psprintf("no holder presented for resource \"%.*s\"",
									 token->name.len, token->name.data),
							psprintf("Server \"%s\" cannot tell whose lease token %lld stands for.",
									 token->lease, (long long) token->number),
							"Call fence.check() with the value of the lock as holder and with the server as lease.");
	return fence_verdict_about(verdict, &token->name, token->number, 0);
}

/* What the server says, unless it is to be asked at commit only. */
static Answer *
new_answer(const PresentedResource *entry, const FenceToken *token,
		   FenceRedis *redis, const char *holder)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(TopTransactionContext);
	Answer	   *answer = palloc0(sizeof(Answer));

	answer->redis = redis;
	answer->server = pstrdup(token->lease);
	answer->holder = pstrdup(holder);
	if (fence_redis_asked_at(redis, false))
		answer->verdict = fence_redis_vouch(redis, answer->server,
											&entry->name, token->number,
											answer->holder);
	MemoryContextSwitchTo(oldcxt);
	return answer;
}

/*
 * Where the token's lease is kept by a server: must that one's word be taken
 * for it?  The answer, good or bad, holds for the whole transaction, whatever
 * is rolled back to a savepoint: a statement that writes a thousand rows asks
 * once, and so does one that is only observed.
 */
static const FenceVerdict *
judge_store(const FenceToken *token, const FenceRow *row,
			const Answer **answer)
{
	FenceVerdict *verdict;
	FenceRedis *redis = NULL;
	PresentedResource *entry;
	Answer	   *item;
	const char *holder;

	if (!fence_lease_in_store(token->lease))
		return NULL;
	verdict = fence_redis_find(token->lease, &redis);
	if (verdict != NULL)
		return fence_verdict_about(verdict, &token->name, token->number, 0);
	holder = stored_holder(token, row);
	if (holder == NULL)
		return no_holder(token);
	entry = presented_entry(&token->name);
	for (item = entry->answers; item != NULL; item = item->next)
	{
		if (strcmp(item->server, token->lease) == 0 &&
			strcmp(item->holder, holder) == 0)
			break;
	}
	if (item == NULL)
	{
		item = new_answer(entry, token, redis, holder);
		item->next = entry->answers;
		entry->answers = item;
	}
	*answer = item;
	return item->verdict;
}

/* The voucher of a presentation for this server, NULL if there is none. */
static const Voucher *
find_voucher(const Presentation *presentation, const char *server)
{
	const Voucher *voucher = presentation->vouchers;

	while (voucher != NULL && strcmp(voucher->answer->server, server) != 0)
		voucher = voucher->next;
	return voucher;
}

static const Voucher *
add_voucher(const Answer *answer, bool observed, const Voucher *next)
{
	Voucher    *voucher = MemoryContextAlloc(TopTransactionContext,
											 sizeof(Voucher));

	voucher->answer = answer;
	voucher->observed = observed;
	voucher->next = next;
	return voucher;
}

static int
demands_of(const FenceToken *token)
{
	int			demands = token->observed ? OBSERVE_ORDER : DEMAND_ORDER;

	if (lease_in_postgres(token->lease))
		demands |= token->observed ? OBSERVE_LEASE : DEMAND_LEASE;
	return demands;
}

/*
 * From now on the transaction stands on this token.  The holder is the one
 * known for it, or NULL; the answer that of its lease store, or NULL.
 */
static Presentation *
remember(const FenceToken *token, const char *holder, const Answer *answer)
{
	PresentedResource *entry = presented_entry(&token->name);
	Presentation *presentation;

	presentation = MemoryContextAlloc(TopTransactionContext,
									  sizeof(Presentation));
	presentation->name = entry->name;
	presentation->subid = GetCurrentSubTransactionId();
	presentation->token = token->number;
	presentation->holder = holder == NULL ? NULL :
		MemoryContextStrdup(TopTransactionContext, holder);
	presentation->named = token->holder != NULL;
	presentation->demands = demands_of(token) |
		(entry->top != NULL ? entry->top->demands : 0);
	presentation->vouchers = entry->top != NULL ? entry->top->vouchers : NULL;
	if (answer != NULL)
		presentation->vouchers = add_voucher(answer, token->observed,
											 presentation->vouchers);
	presentation->version.buffer = InvalidBuffer;
	presentation->below = entry->top;
	presentation->older = newest;
	entry->top = newest = presentation;
	generation++;
	return presentation;
}

/*
 * Under REPEATABLE READ and SERIALIZABLE the snapshot of the work must be
 * younger than the takeover lock, or the last commit of the older holder is
 * missed.  Holding that lock without having presented anything means that
 * the token was acquired in this transaction.
 */
static const FenceVerdict *
judge_snapshot(const FenceToken *token)
{
	const FenceName *name = &token->name;
	FenceVerdict *verdict;

	if (!IsolationUsesXactSnapshot() ||
		!fence_lock_held(name, FENCE_LOCK_TAKEOVER))
		return NULL;
	verdict = fence_verdict(ERRCODE_ACTIVE_SQL_TRANSACTION,
							psprintf("resource \"%.*s\" was acquired in this transaction",
									 name->len, name->data),
							"The transaction's snapshot is older than the acquisition and may miss the last commit of the previous holder.",
							"At this isolation level, acquire in a transaction of its own and present the token in the next one.");
	return fence_verdict_about(verdict, name, token->number, token->number);
}

/* A token that is the mark, presented for the first time. */
static const FenceVerdict *
present_equal(const FenceToken *token, const FenceRow *row,
			  const Presentation *before)
{
	const FenceName *name = &token->name;
	const FenceVerdict *verdict;
	const Answer *answer = NULL;

	/* Raised since by somebody else: our earlier work is late. */
	if (before != NULL)
		return fence_superseded(name, token->number, before->token);
	verdict = fence_judge_holder(name, token->number, token->holder,
								 row->mark_holder);
	if (verdict == NULL && lease_in_postgres(token->lease))
		verdict = fence_judge_lease(name, token->number, row);
	if (verdict == NULL)
		verdict = judge_snapshot(token);
	if (verdict == NULL)
		verdict = judge_store(token, row, &answer);
	if (verdict != NULL)
		return verdict;

	fence_lock_presence(name, token->number);
	remember(token, row->mark_holder ? row->mark_holder : token->holder,
			 answer)->version = row->version;
	return NULL;
}

/*
 * Can a token above the mark become the mark?  Not where tokens are issued
 * here: then it is a made-up number.
 */
static const FenceVerdict *
judge_raise(const FenceToken *token, const FenceRow *row)
{
	if (row->token > 0)
		return fence_never_issued(&token->name, token->number, row);
	if (lease_in_postgres(token->lease))
		return fence_not_held(&token->name, token->number, row);
	return NULL;
}

/*
 * The token was above the mark as read without a lock.  The gate may be
 * waited for; after it the row is read again, because a parallel session of
 * the same holder may have presented the same token meanwhile.  Unless the
 * mark is to rise, the gate is given back at once, so that equal tokens do
 * not queue up.  The server that keeps the lease has been asked before, so
 * that nobody waits at the gate for its answer.
 */
static const FenceVerdict *
present_higher(const FenceToken *token, const Presentation *before,
			   const Answer *answer)
{
	const FenceName *name = &token->name;
	const FenceVerdict *verdict = NULL;
	FenceRow	row;

	fence_lock(name, FENCE_LOCK_GATE);
	fence_row_read(name, &row);
	if (token->number > row.mark)
		verdict = judge_raise(token, &row);
	if (token->number <= row.mark || verdict != NULL)
	{
		fence_unlock(name, FENCE_LOCK_GATE);
		if (verdict != NULL)
			return verdict;
		return fence_row_outranks(&row, token->number) ?
			fence_stale(name, token->number, &row) :
			present_equal(token, &row, before);
	}

	fence_lock(name, FENCE_LOCK_TAKEOVER);
	verdict = fence_present_judge_move(name, &row);
	if (verdict != NULL)
	{
		fence_unlock(name, FENCE_LOCK_TAKEOVER);
		fence_unlock(name, FENCE_LOCK_GATE);
		return verdict;
	}
	row.mark = token->number;
	row.mark_holder = unconstify(char *, token->holder);
	row.marked_at = GetCurrentTimestamp();
	fence_row_write(name, &row);

	fence_lock_presence(name, token->number);
	(void) remember(token, token->holder, answer);
	return NULL;
}

/*
 * Presented before in this transaction, with the same number.  The new
 * presentation may demand more.  A guard that wants a server's word knows no
 * holder: it asks about the one that fence.check() has named.
 */
static const FenceVerdict *
present_again(const FenceToken *again, const Presentation *before)
{
	FenceToken	token = *again;
	const FenceVerdict *verdict;
	const Voucher *voucher = NULL;
	const Answer *answer = NULL;
	FenceRow	row;

	verdict = fence_judge_holder(&token.name, token.number, token.holder,
								 before->holder);
	if (verdict != NULL)
		return verdict;
	if (token.holder == NULL && before->named)
		token.holder = before->holder;
	if (fence_lease_in_store(token.lease))
		voucher = find_voucher(before, token.lease);
	if (voucher != NULL)
		answer = voucher->answer;
	else if (fence_lease_in_store(token.lease) ||
			 (lease_in_postgres(token.lease) &&
			  (before->demands & ANY_LEASE) == 0))
	{
		fence_row_read(&token.name, &row);
		verdict = lease_in_postgres(token.lease) ?
			fence_judge_lease(&token.name, token.number, &row) :
			judge_store(&token, &row, &answer);
		if (verdict != NULL)
			return verdict;
	}
	if ((demands_of(&token) & ~before->demands) != 0 ||
		(token.holder != NULL && !before->named) ||
		(answer != NULL &&
		 (voucher == NULL || (voucher->observed && !token.observed))))
		remember(&token, before->holder ? before->holder : token.holder,
				 answer)->version = before->version;
	return NULL;
}

/*
 * Presents a token for a resource in this transaction: judges it now, and
 * has it judged again at commit.  Returns a verdict if it is refused; then
 * nothing has changed.
 */
const FenceVerdict *
fence_present(const FenceToken *token)
{
	Presentation *before = find_presentation(&token->name);
	const FenceVerdict *verdict;
	const Answer *answer = NULL;
	FenceRow	row;

	if (before != NULL && token->number == before->token)
		return present_again(token, before);

	/* counted before any verdict, and as late as that: see counters.c */
	fence_stats_expect(&token->name);
	fence_row_read(&token->name, &row);
	fence_stats_check(&token->name);

	if (before != NULL && token->number < before->token)
		return fence_superseded(&token->name, token->number, before->token);
	if (fence_row_outranks(&row, token->number))
		return fence_stale(&token->name, token->number, &row);
	if (token->number == row.mark)
		return present_equal(token, &row, before);
	verdict = judge_raise(token, &row);
	if (verdict == NULL)
		verdict = judge_store(token, &row, &answer);
	return verdict != NULL ? verdict : present_higher(token, before, answer);
}

/*
 * Raises the mark without presenting anything: for an operator, and for rows
 * that come by replication.  Returns the mark before; it stays if it is not
 * below the token.
 */
int64
fence_raise(const FenceName *name, int64 token)
{
	FenceRow	row;
	int64		before;

	fence_row_read(name, &row);
	if (token <= row.mark)
		return row.mark;
	fence_lock(name, FENCE_LOCK_GATE);
	fence_row_read(name, &row);
	if (token <= row.mark)
	{
		fence_unlock(name, FENCE_LOCK_GATE);
		return row.mark;
	}
	fence_lock(name, FENCE_LOCK_TAKEOVER);
	before = row.mark;
	row.mark = token;
	row.mark_holder = NULL;
	row.marked_at = GetCurrentTimestamp();
	fence_row_write(name, &row);
	return before;
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
	return newest != NULL;
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
const FenceVerdict *
fence_present_judge_move(const FenceName *name, const FenceRow *row)
{
	Presentation *before = find_presentation(name);

	Assert(fence_lock_held(name, FENCE_LOCK_TAKEOVER));
	if (before != NULL && before->token != row->mark)
		return fence_stale(name, before->token, row);
	return NULL;
}

/*
 * The resource was acquired again, in a transaction that already stands on
 * an older token for it: from now on it stands on the new one.  A
 * transaction that has presented nothing still has to.
 */
void
fence_present_moved(const FenceName *name, int64 number, const char *holder)
{
	Presentation *before = find_presentation(name);
	FenceToken	token = {0};

	if (before == NULL)
		return;
	token.name = *name;
	token.number = number;
	token.observed = true;		/* no new demand, the old ones stay */
	(void) remember(&token, holder, NULL);
}

/*
 * Takes the commit lock, without waiting for anybody who is still at work.
 */
static const FenceVerdict *
take_commit_lock(const PresentedResource *entry)
{
	const FenceName *name = &entry->name;
	int			tries;

	/* We raise the mark ourselves; asking for less might fail. */
	if (fence_lock_held(name, FENCE_LOCK_TAKEOVER))
		return NULL;

	for (tries = 0; tries < COMMIT_LOCK_TRIES; tries++)
	{
		if (fence_lock_nowait(name, FENCE_LOCK_COMMIT))
			return NULL;
		if (fence_lock_contested(name, FENCE_LOCK_COMMIT))
			break;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000L);
	}
	return fence_overtaken(name, entry->top->token);
}

static void
enforce(const PresentedResource *entry, int demand,
		const FenceVerdict *verdict)
{
	if (verdict != NULL)
		fence_verdict_report(entry->top->demands & demand ? ERROR : WARNING,
							 verdict, NULL);
}

static void
judge_at_commit(const PresentedResource *entry, Snapshot snapshot)
{
	const Presentation *top = entry->top;
	FenceRow	row;

	if (!fence_resource_exists())
	{
		enforce(entry, DEMAND_ORDER,
				fence_table_missing(&entry->name, top->token));
		return;
	}
	fence_row_read_at(&entry->name, snapshot, &row);
	if (fence_row_outranks(&row, top->token))
		enforce(entry, DEMAND_ORDER,
				fence_stale(&entry->name, top->token, &row));
	else if (!row.found)		/* deleted by hand: no mark to judge by */
		enforce(entry, DEMAND_ORDER,
				fence_row_missing(&entry->name, top->token));
	else if ((top->demands & ANY_LEASE) != 0 &&
			 (row.token != top->token ||
			  !fence_lease_live_at_commit(&row, GetCurrentTimestamp())))
		enforce(entry, DEMAND_LEASE,
				fence_not_held(&entry->name, top->token, &row));
}

/*
 * Is the mark what it was when the token was presented?  The clock has moved
 * on since, so a lease has to be looked at again in any case.
 */
static bool
stands_unread(const PresentedResource *entry)
{
	return (entry->top->demands & ANY_LEASE) == 0 &&
		fence_row_unchanged(&entry->top->version);
}

static int
compare_lock_keys(const void *a, const void *b)
{
	uint64		left = (*(PresentedResource *const *) a)->name.key;
	uint64		right = (*(PresentedResource *const *) b)->name.key;

	return left < right ? -1 : left > right ? 1 : 0;
}

/*
 * Asks the servers that are to be asked before a commit.
 */
static void
ask_at_commit(const PresentedResource *entry)
{
	const Voucher *voucher;
	const Answer *answer = NULL;
	const FenceVerdict *verdict;

	for (voucher = entry->top->vouchers; voucher != NULL;
		 voucher = voucher->next)
	{
		/* what was first only observed, and then demanded */
		if (voucher->answer == answer)
			continue;
		answer = voucher->answer;
		if (!fence_redis_asked_at(answer->redis, true))
			continue;
		verdict = fence_redis_vouch(answer->redis, answer->server,
									&entry->name, entry->top->token,
									answer->holder);
		if (verdict != NULL)
			fence_verdict_report(voucher->observed ? WARNING : ERROR, verdict,
								 NULL);
	}
}

/*
 * Before commit and before PREPARE: judges every presented token again.
 *
 * Servers are asked before any lock is taken, so that nobody who takes over
 * waits for their answers.
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
	int			count = 0;
	int			locked = 0;
	int			changed = 0;
	int			i;

	entries = MemoryContextAlloc(TopTransactionContext,
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
		ask_at_commit(entries[i]);
	for (i = 0; i < count; i++)
	{
		const FenceVerdict *verdict = take_commit_lock(entries[i]);

		if (verdict == NULL)
			entries[locked++] = entries[i];
		else
			enforce(entries[i], DEMAND_ORDER, verdict);
	}

	/* Whoever got no lock has been warned, and need not be told again. */
	for (i = 0; i < locked; i++)
	{
		if (!stands_unread(entries[i]))
			entries[changed++] = entries[i];
	}
	if (changed == 0)
		return;
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	for (i = 0; i < changed; i++)
		judge_at_commit(entries[i], snapshot);
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
			newest = NULL;
			generation++;
			break;
		default:
			break;
	}
}

/* The subtransaction of the newest presentation is rolled back. */
static void
take_back(Presentation *presentation)
{
	presented_lookup(presented, presentation->name)->top = presentation->below;
	newest = presentation->older;
	if (presentation->holder != NULL)
		pfree(unconstify(char *, presentation->holder));
	pfree(presentation);
	generation++;
}

/*
 * Gives the presentations of a subtransaction to its parent, or takes them
 * back.
 */
static void
subxact_callback(SubXactEvent event, SubTransactionId subid,
				 SubTransactionId parent, void *arg)
{
	Presentation *item;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (item = newest; item != NULL && item->subid == subid;
			 item = item->older)
			item->subid = parent;
	}
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		while (newest != NULL && newest->subid == subid)
			take_back(newest);
	}
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
	FenceToken	token = {0};
	const FenceVerdict *verdict;

	fence_prevent_read_only("fence.check()");
	token.name = fence_arg_name(fcinfo, 0);
	token.number = fence_arg_token(fcinfo, 1);
	token.holder = fence_arg_text(fcinfo, 2, "holder", FENCE_RESOURCE_MAX,
								  true);
	token.lease = fence_arg_text(fcinfo, 3, "lease", NAMEDATALEN, true);

	verdict = fence_present(&token);
	if (verdict != NULL)
		fence_verdict_report(ERROR, verdict, NULL);
	PG_RETURN_BOOL(true);
}
