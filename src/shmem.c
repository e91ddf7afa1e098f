/*-------------------------------------------------------------------------
 *
 * shmem.c
 *	  Shared memory of pg_fence: statistics, the queue of waiters, and what
 *	  sessions tell each other about Redis servers.
 *
 * All of it is for convenience; no verdict depends on it.  It is there where
 * the library is in shared_preload_libraries, and from PostgreSQL 17 on
 * without that, too: then the first backend that needs it makes it.
 *
 * It is one block of fixed size, with the parts of FencePart one after the
 * other, each with cache lines of its own.  What is in a part is the business
 * of the file that owns it.
 *
 * IDENTIFICATION
 *	  src/shmem.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/guc.h"

#include "attempt.h"
#include "compat.h"
#include "redis_breaker.h"
#include "rejection.h"
#include "shmem.h"
#include "stats.h"
#include "wait_queue.h"

/*
 * The number changes with the layout: a new library may be installed while
 * the server runs, and must not meet the memory of the old one.
 */
#define SEGMENT_NAME	"pg_fence 3"
#define LIMITS_NAME		"pg_fence limits 1"

typedef struct SharedHeader
{
	int			tranche;		/* of all locks in here */
	Size		offsets[FENCE_PARTS];
} SharedHeader;

static const struct
{
	Size		(*size) (const FenceLimits *limits);
	void		(*init) (void *part, const FenceLimits *limits, int tranche);
}			parts[FENCE_PARTS] =
{
	[FENCE_PART_RESOURCES] = {fence_resource_stats_size,
	fence_resource_stats_init},
	[FENCE_PART_TABLES] = {fence_table_stats_size, fence_table_stats_init},
	[FENCE_PART_SERVERS] = {fence_server_stats_size, fence_server_stats_init},
	[FENCE_PART_BREAKERS] = {fence_breakers_size, fence_breakers_init},
	[FENCE_PART_REJECTIONS] = {fence_rejections_size, fence_rejections_init},
	[FENCE_PART_QUEUE] = {fence_wait_queue_size, fence_wait_queue_init}
};

/*
 * Where the parts are; NULL if there is no shared memory, or this backend has
 * not attached yet.
 */
static void *attached[FENCE_PARTS];

/* pg_fence.max_resources: 0 switches shared memory off. */
static int	max_resources = 1000;

/* pg_fence.max_rejections: how far back fence.rejections goes. */
static int	max_rejections = 1000;

/* Was the library loaded when the server started? */
static bool preloaded = false;

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static FenceLimits
current_limits(void)
{
	FenceLimits limits;

	limits.max_resources = max_resources;
	limits.max_rejections = max_rejections;
	return limits;
}

static Size
shared_size(const FenceLimits *limits)
{
	Size		size = CACHELINEALIGN(sizeof(SharedHeader));
	int			i;

	for (i = 0; i < FENCE_PARTS; i++)
		size = add_size(size, CACHELINEALIGN(parts[i].size(limits)));
	return size;
}

static void
init_shared(void *memory, const FenceLimits *limits)
{
	SharedHeader *header = memory;
	Size		offset = CACHELINEALIGN(sizeof(SharedHeader));
	int			i;

	header->tranche = LWLockNewTrancheId();
	for (i = 0; i < FENCE_PARTS; i++)
	{
		header->offsets[i] = offset;
		parts[i].init((char *) memory + offset, limits, header->tranche);
		offset += CACHELINEALIGN(parts[i].size(limits));
	}
}

static void
use_shared(void *memory)
{
	SharedHeader *header = memory;
	int			i;

	LWLockRegisterTranche(header->tranche, "pg_fence");
	for (i = 0; i < FENCE_PARTS; i++)
		attached[i] = (char *) header + header->offsets[i];
}

static void
request_shared(void)
{
	FenceLimits limits = current_limits();

	if (previous_request_hook)
		previous_request_hook();
	if (max_resources > 0)
		RequestAddinShmemSpace(shared_size(&limits));
}

static void
startup_shared(void)
{
	FenceLimits limits = current_limits();
	void	   *memory;
	bool		found;

	if (previous_startup_hook)
		previous_startup_hook();
	if (max_resources == 0)
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	memory = ShmemInitStruct(SEGMENT_NAME, shared_size(&limits), &found);
	if (!found)
		init_shared(memory, &limits);
	LWLockRelease(AddinShmemInitLock);
	use_shared(memory);
}

static void
init_limits_segment(void *memory)
{
	*(FenceLimits *) memory = current_limits();
}

/* The limits that the segment was made with; not ours, if they have changed. */
static const FenceLimits *segment_limits;

static void
init_segment(void *memory)
{
	init_shared(memory, segment_limits);
}

/*
 * Attaches to memory that the library makes itself.  Its size depends on
 * settings and must be the same for everybody; hence a segment of fixed size
 * that keeps them, and another one for the rest.
 */
static bool
attach_segment(void *arg)
{
	segment_limits = fence_named_segment(LIMITS_NAME, sizeof(FenceLimits),
										 init_limits_segment);
	use_shared(fence_named_segment(SEGMENT_NAME, shared_size(segment_limits),
								   init_segment));
	return true;
}

static bool
is_attached(void)
{
	return attached[0] != NULL;
}

static bool
can_attach(void)
{
	return fence_has_segments() && max_resources > 0 && IsUnderPostmaster &&
		IsTransactionState() && !IsInParallelMode();
}

/*
 * Is there shared memory?  Attaches to it, if that is still to be done.
 *
 * For what only counts: where no memory is to be had, the server's log says
 * so, and this backend goes without.
 */
bool
fence_shared_attach(void)
{
	static bool tried = false;
	ErrorData  *error;

	if (is_attached() || tried || !can_attach())
		return is_attached();
	if (!fence_attempt(attach_segment, NULL, FENCE_ANY_ERROR, &error))
	{
		tried = true;
		ereport(LOG,
				(errmsg("statistics of pg_fence are not available in this session"),
				 errdetail_internal("%s", error->message)));
	}
	return is_attached();
}

/*
 * A part of the shared memory; NULL if there is none, or this backend has not
 * attached.  Raises nothing, so that it can be used in any state.
 */
void *
fence_shared(FencePart part)
{
	return attached[part];
}

/* What to do where there is no shared memory. */
static const char *
remedy(void)
{
	if (max_resources > 0)
		return "Add \"pg_fence\" to shared_preload_libraries and restart the server.";
	if (preloaded || fence_has_segments())
		return "Set pg_fence.max_resources to more than 0 and restart the server.";
	return "Add \"pg_fence\" to shared_preload_libraries, set pg_fence.max_resources to more than 0, and restart the server.";
}

/*
 * The same, for what cannot do without.
 */
void *
fence_shared_required(FencePart part)
{
	if (!is_attached() && can_attach())
		(void) attach_segment(NULL);
	if (!is_attached())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("statistics of pg_fence are not available"),
				 errdetail("They are kept in shared memory, and there is none for them."),
				 errhint("%s", remedy())));
	return fence_shared(part);
}

/*
 * Once per server, or once per backend where the library is loaded late.
 */
void
fence_shmem_init(void)
{
	/* A setting that is fixed at start must not be defined after it. */
	GucContext	context;

	preloaded = process_shared_preload_libraries_in_progress;
	context = preloaded ? PGC_POSTMASTER : PGC_SIGHUP;

	DefineCustomIntVariable("pg_fence.max_resources",
							"Number of resources that statistics are kept for.",
							"Those least used give way to others. 0 switches the shared memory of pg_fence off. Takes effect when the server starts.",
							&max_resources, 1000, 0, 100000, context, 0,
							NULL, NULL, NULL);
	DefineCustomIntVariable("pg_fence.max_rejections",
							"Number of refused writes that fence.rejections shows.",
							"Takes effect when the server starts.",
							&max_rejections, 1000, 1, 100000, context, 0,
							NULL, NULL, NULL);
	if (!preloaded)
		return;
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shared;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shared;
}
