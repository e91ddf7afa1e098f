/*-------------------------------------------------------------------------
 *
 * rejection.c
 *	  The last refused writes.
 *
 * A refused write leaves no trace in tables, because its transaction is
 * rolled back.  The last ones of the server are kept in a ring in shared
 * memory, and now and then one is written to the server's log.
 *
 * IDENTIFICATION
 *	  src/rejection.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "rejection.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(fence_rejections);

typedef struct Rejection
{
	TimestampTz at;				/* 0: none */
	Oid			dbid;
	Oid			role;
	Oid			relid;			/* InvalidOid if no table is involved */
	int			pid;
	int			sqlstate;
	bool		observed;		/* a warning only */
	int64		presented;		/* 0 if there is none */
	int64		mark;			/* the same */
	char		application[NAMEDATALEN];
	int			resource_len;	/* 0: unknown */
	char		resource[FENCE_RESOURCE_MAX];
} Rejection;

/*
 * When a rejection of some kind was logged last.  A kind is in one of a few
 * entries that its hash says.  When other kinds have been logged there in the
 * last minute, it is silent: none fills the log.
 */
typedef struct LogLimit
{
	uint64		kind;
	TimestampTz logged;
	int64		silent;			/* of this kind, not logged since */
} LogLimit;

#define LOG_LIMITS		1024
#define LOG_CHOICES		8
#define LOG_INTERVAL	USECS_PER_MINUTE

typedef struct Ring
{
	LWLock		lock;
	uint64		max;
	uint64		count;			/* the next one goes to count % max */
	LogLimit	limits[LOG_LIMITS];
	Rejection	entries[FLEXIBLE_ARRAY_MEMBER];
} Ring;

Size
fence_rejections_size(const FenceLimits *limits)
{
	return add_size(offsetof(Ring, entries),
					mul_size(limits->max_rejections, sizeof(Rejection)));
}

void
fence_rejections_init(void *part, const FenceLimits *limits, int tranche)
{
	Ring	   *ring = part;

	memset(ring, 0, fence_rejections_size(limits));
	LWLockInitialize(&ring->lock, tranche);
	ring->max = limits->max_rejections;
}

static void
describe(Rejection *rejection, const FenceVerdict *verdict, Oid relid,
		 bool observed)
{
	const FenceName *name = &verdict->resource;

	memset(rejection, 0, sizeof(Rejection));
	rejection->at = GetCurrentTimestamp();
	rejection->dbid = MyDatabaseId;
	/* not that of a SECURITY DEFINER function */
	rejection->role = GetOuterUserId();
	rejection->relid = relid;
	rejection->pid = MyProcPid;
	rejection->sqlstate = verdict->sqlstate;
	rejection->observed = observed;
	rejection->presented = verdict->presented;
	rejection->mark = verdict->mark;
	strlcpy(rejection->application, application_name,
			sizeof(rejection->application));
	if (name->data != NULL)
	{
		Assert(name->len <= FENCE_RESOURCE_MAX);
		rejection->resource_len = name->len;
		memcpy(rejection->resource, name->data, name->len);
	}
}

/*
 * The entry of this kind, or the one for it to take: that which was used
 * least recently.
 */
static LogLimit *
find_limit(Ring *ring, uint64 kind)
{
	LogLimit   *oldest = NULL;
	int			i;

	for (i = 0; i < LOG_CHOICES; i++)
	{
		LogLimit   *limit = &ring->limits[(kind + i) % LOG_LIMITS];

		if (limit->kind == kind)
			return limit;
		if (oldest == NULL || limit->logged < oldest->logged)
			oldest = limit;
	}
	return oldest;
}

/*
 * May this one go to the log?  At most one a minute of each kind: SQLSTATE
 * and resource.
 */
static bool
may_log(Ring *ring, const Rejection *rejection, int64 *silent)
{
	uint64		kind;
	LogLimit   *limit;
	bool		same;

	kind = hash_bytes_extended((const unsigned char *) rejection->resource,
							   rejection->resource_len,
							   rejection->sqlstate ^
							   ((uint64) rejection->dbid << 32));
	limit = find_limit(ring, kind);
	same = (limit->kind == kind);
	/* a clock that was set back must not silence the log */
	if (rejection->at >= limit->logged &&
		rejection->at - limit->logged < LOG_INTERVAL)
	{
		limit->silent += same;
		return false;
	}
	*silent = same ? limit->silent : 0;
	limit->kind = kind;
	limit->logged = rejection->at;
	limit->silent = 0;
	return true;
}

static void
append_text(StringInfo line, const char *key, const char *value)
{
	appendStringInfo(line, ", \"%s\": ", key);
	if (value != NULL)
		escape_json(line, value);
	else
		appendStringInfoString(line, "null");
}

static void
append_number(StringInfo line, const char *key, int64 value, bool isnull)
{
	if (isnull)
		appendStringInfo(line, ", \"%s\": null", key);
	else
		appendStringInfo(line, ", \"%s\": %lld", key, (long long) value);
}

/*
 * One line of JSON for whatever reads the log.  Names and numbers only: what
 * the row holds may not be for the log.
 */
static void
write_log(const Rejection *rejection, int64 silent)
{
	StringInfoData line;

	initStringInfo(&line);
	appendStringInfo(&line, "{\"sqlstate\": \"%s\"",
					 unpack_sql_state(rejection->sqlstate));
	append_text(&line, "resource", rejection->resource_len == 0 ? NULL :
				pnstrdup(rejection->resource, rejection->resource_len));
	append_number(&line, "presented", rejection->presented,
				  rejection->presented == 0);
	append_number(&line, "mark", rejection->mark, rejection->mark == 0);
	append_text(&line, "table", !OidIsValid(rejection->relid) ? NULL :
				quote_qualified_identifier(get_namespace_name(get_rel_namespace(rejection->relid)),
										   get_rel_name(rejection->relid)));
	append_text(&line, "role", GetUserNameFromId(rejection->role, true));
	append_text(&line, "application", rejection->application);
	appendStringInfo(&line, ", \"observed\": %s",
					 rejection->observed ? "true" : "false");
	append_number(&line, "not_logged", silent, false);
	appendStringInfoChar(&line, '}');

	/* not to the client, who gets the error */
	ereport(LOG_SERVER_ONLY,
			(errmsg_internal("pg_fence rejection: %s", line.data),
			 errhidestmt(true), errhidecontext(true)));
	pfree(line.data);
}

/*
 * Records a refusal that is about to be raised, or one that a guard has only
 * observed.
 */
void
fence_rejection(const FenceVerdict *verdict, const FenceSite *site,
				bool observed)
{
	Oid			relid = site == NULL ? InvalidOid :
		RelationGetRelid(site->relation);
	Ring	   *ring;
	Rejection	rejection;
	int64		silent = 0;
	bool		log;

	if (!fence_shared_attach())
		return;
	fence_stats_rejection(&verdict->resource, relid, verdict->sqlstate,
						  observed);
	describe(&rejection, verdict, relid, observed);

	ring = fence_shared(FENCE_PART_REJECTIONS);
	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	ring->entries[ring->count++ % ring->max] = rejection;
	log = may_log(ring, &rejection, &silent);
	LWLockRelease(&ring->lock);

	if (log)
		write_log(&rejection, silent);
}

/*
 * Forgets the rejections of this database.
 */
void
fence_rejections_reset(void)
{
	Ring	   *ring = fence_shared_required(FENCE_PART_REJECTIONS);
	uint64		i;

	LWLockAcquire(&ring->lock, LW_EXCLUSIVE);
	for (i = 0; i < ring->max; i++)
	{
		if (ring->entries[i].dbid == MyDatabaseId)
			memset(&ring->entries[i], 0, sizeof(Rejection));
	}
	LWLockRelease(&ring->lock);
}

static uint64
count_of(Ring *ring)
{
	uint64		count;

	LWLockAcquire(&ring->lock, LW_SHARED);
	count = ring->count;
	LWLockRelease(&ring->lock);
	return count;
}

/*
 * The nth rejection since the server was started; false if others have taken
 * its place, maybe while the reader was on his way.
 */
static bool
get_rejection(Ring *ring, uint64 n, Rejection *rejection)
{
	bool		there;

	LWLockAcquire(&ring->lock, LW_SHARED);
	there = (ring->count - n <= ring->max);
	*rejection = ring->entries[n % ring->max];
	LWLockRelease(&ring->lock);
	return there;
}

#define REJECTION_COLUMNS	10

static void
put_rejection(ReturnSetInfo *rsinfo, const Rejection *rejection)
{
	Datum		values[REJECTION_COLUMNS];
	bool		nulls[REJECTION_COLUMNS] = {0};

	values[0] = TimestampTzGetDatum(rejection->at);
	values[1] = ObjectIdGetDatum(rejection->role);
	values[2] = CStringGetTextDatum(rejection->application);
	values[3] = Int32GetDatum(rejection->pid);
	values[4] = PointerGetDatum(cstring_to_text_with_len(rejection->resource,
														 rejection->resource_len));
	nulls[4] = (rejection->resource_len == 0);
	values[5] = Int64GetDatum(rejection->presented);
	nulls[5] = (rejection->presented == 0);
	values[6] = Int64GetDatum(rejection->mark);
	nulls[6] = (rejection->mark == 0);
	values[7] = ObjectIdGetDatum(rejection->relid);
	nulls[7] = !OidIsValid(rejection->relid);
	values[8] = CStringGetTextDatum(unpack_sql_state(rejection->sqlstate));
	values[9] = BoolGetDatum(rejection->observed);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * fence.rejections(missing_ok boolean)
 *
 * Those of this database that are still in the ring, newest first.  Without
 * shared memory 55000, or no rows if that is what the caller wants.
 */
Datum
fence_rejections(PG_FUNCTION_ARGS)
{
	Ring	   *ring;
	Rejection	rejection;
	uint64		next;

	InitMaterializedSRF(fcinfo, 0);
	if (PG_GETARG_BOOL(0) && !fence_shared_attach())
		PG_RETURN_VOID();
	ring = fence_shared_required(FENCE_PART_REJECTIONS);
	next = count_of(ring);
	while (next > 0 && get_rejection(ring, --next, &rejection))
	{
		CHECK_FOR_INTERRUPTS();
		if (rejection.dbid == MyDatabaseId)
			put_rejection((ReturnSetInfo *) fcinfo->resultinfo, &rejection);
	}
	PG_RETURN_VOID();
}
