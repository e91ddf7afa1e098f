/*-------------------------------------------------------------------------
 *
 * stats.c
 *	  What is counted, per resource, per table and per Redis server.
 *
 * Counted is what happens, whether or not its transaction commits: a refused
 * write is rolled back, and is what people look for.  Nothing is counted per
 * row.  All of it goes to shared memory at once, so that nothing is lost with
 * a backend; without shared memory nothing is counted.
 *
 * IDENTIFICATION
 *	  src/stats.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"

#include "counters.h"
#include "stats.h"

Size
fence_resource_stats_size(const FenceLimits *limits)
{
	return fence_counters_size(limits->max_resources, FENCE_RESOURCE_MAX,
							   FENCE_RESOURCE_COUNTERS);
}

void
fence_resource_stats_init(void *part, const FenceLimits *limits, int tranche)
{
	fence_counters_init(part, limits->max_resources, FENCE_RESOURCE_MAX,
						FENCE_RESOURCE_COUNTERS, tranche);
}

Size
fence_table_stats_size(const FenceLimits *limits)
{
	return fence_counters_size(FENCE_STATS_TABLES, sizeof(Oid),
							   FENCE_TABLE_COUNTERS);
}

void
fence_table_stats_init(void *part, const FenceLimits *limits, int tranche)
{
	fence_counters_init(part, FENCE_STATS_TABLES, sizeof(Oid),
						FENCE_TABLE_COUNTERS, tranche);
}

Size
fence_server_stats_size(const FenceLimits *limits)
{
	return fence_counters_size(FENCE_STATS_SERVERS, sizeof(Oid),
							   FENCE_SERVER_COUNTERS);
}

void
fence_server_stats_init(void *part, const FenceLimits *limits, int tranche)
{
	fence_counters_init(part, FENCE_STATS_SERVERS, sizeof(Oid),
						FENCE_SERVER_COUNTERS, tranche);
}

static void
add(FencePart part, const FenceCounterKey *key,
	const FenceIncrement *increments, int count)
{
	if (fence_shared_attach())
		fence_counters_add(fence_shared(part), key, increments, count);
}

static FenceCounterKey
resource_key(const FenceName *name)
{
	FenceCounterKey key = {name->key, name->data, name->len};

	return key;
}

static void
add_to_resource(const FenceName *name, const FenceIncrement *increments,
				int count)
{
	FenceCounterKey key = resource_key(name);

	add(FENCE_PART_RESOURCES, &key, increments, count);
}

static void
add_to_object(FencePart part, Oid oid, const FenceIncrement *increments,
			  int count)
{
	FenceCounterKey key = {murmurhash32(oid), &oid, sizeof(Oid)};

	add(part, &key, increments, count);
}

/*
 * Somebody wants the lease on a resource.  Contended: it is not free.
 */
void
fence_stats_attempt(const FenceName *name, bool contended)
{
	FenceIncrement increments[] = {
		{FENCE_RESOURCE_ATTEMPTS, 1},
		{FENCE_RESOURCE_CONTENDED, contended}
	};

	add_to_resource(name, increments, lengthof(increments));
}

/*
 * Somebody has waited for that, so many microseconds, with or without success;
 * an error or the end of his session may have ended it.
 */
void
fence_stats_wait(const FenceName *name, int64 waited)
{
	FenceIncrement increments[] = {
		{FENCE_RESOURCE_WAIT_TIME, waited},
		{FENCE_RESOURCE_WAITS + fence_histogram_bucket(waited), 1}
	};

	add_to_resource(name, increments, lengthof(increments));
}

/*
 * A lease has been granted.
 */
void
fence_stats_grant(const FenceName *name)
{
	FenceIncrement increment = {FENCE_RESOURCE_ACQUIRED, 1};

	add_to_resource(name, &increment, 1);
}

/*
 * A lease has ended that was held for so many microseconds.
 */
void
fence_stats_lease_end(const FenceName *name, FenceLeaseEnd end, int64 held)
{
	static const FenceResourceCounter ends[] = {
		[FENCE_LEASE_RELEASED] = FENCE_RESOURCE_RELEASES,
		[FENCE_LEASE_EXPIRED] = FENCE_RESOURCE_EXPIRATIONS,
		[FENCE_LEASE_TAKEN_OVER] = FENCE_RESOURCE_EXPIRATIONS,
		[FENCE_LEASE_HANDED_OVER] = FENCE_RESOURCE_HAND_OVERS,
		[FENCE_LEASE_BROKEN] = FENCE_RESOURCE_BREAKS
	};
	FenceIncrement increments[] = {
		{ends[end], 1},
		{FENCE_RESOURCE_TAKEOVERS, end == FENCE_LEASE_TAKEN_OVER},
		{FENCE_RESOURCE_HOLD_TIME, held},
		{FENCE_RESOURCE_HOLDS + fence_histogram_bucket(held), 1}
	};

	add_to_resource(name, increments, lengthof(increments));
}

/*
 * Something will be counted for this resource before long.
 */
void
fence_stats_expect(const FenceName *name)
{
	FenceCounterKey key = resource_key(name);

	if (fence_shared_attach())
		fence_counters_expect(fence_shared(FENCE_PART_RESOURCES), &key);
}

/*
 * A transaction presents a token that it has not presented before.
 */
void
fence_stats_check(const FenceName *name)
{
	FenceIncrement increment = {FENCE_RESOURCE_CHECKS, 1};

	add_to_resource(name, &increment, 1);
}

static int
rejection_class(int sqlstate)
{
	int			i;

	for (i = 0; i < FENCE_REJECTION_CLASSES - 1; i++)
	{
		if (sqlstate == MAKE_SQLSTATE('P', 'F', '0', '0', '1' + i))
			break;
	}
	return i;
}

/*
 * A write or a token was refused, or would have been by a guard that does
 * more than observe.  The resource may be unknown, and so may the table.
 */
void
fence_stats_rejection(const FenceName *name, Oid relid, int sqlstate,
					  bool observed)
{
	FenceIncrement increment = {0, 1};
	int			class = rejection_class(sqlstate);

	if (name->data != NULL)
	{
		increment.counter = observed ? FENCE_RESOURCE_OBSERVED :
			FENCE_RESOURCE_REJECTIONS + class;
		add_to_resource(name, &increment, 1);
	}
	if (OidIsValid(relid))
	{
		increment.counter = observed ? FENCE_TABLE_OBSERVED :
			FENCE_TABLE_REJECTIONS + class;
		add_to_object(FENCE_PART_TABLES, relid, &increment, 1);
	}
}

/*
 * A statement on a protected table was not judged.
 */
void
fence_stats_bypass(Oid relid)
{
	FenceIncrement increment = {FENCE_TABLE_BYPASSED, 1};

	add_to_object(FENCE_PART_TABLES, relid, &increment, 1);
}

/*
 * One round trip to Redis, with what it took in microseconds.
 */
void
fence_stats_redis(Oid server, int64 elapsed, FenceRedisOutcome outcome)
{
	FenceIncrement increments[] = {
		{FENCE_SERVER_OUTCOMES + outcome, 1},
		{FENCE_SERVER_TIME, elapsed},
		{FENCE_SERVER_CALLS + fence_histogram_bucket(elapsed), 1}
	};

	add_to_object(FENCE_PART_SERVERS, server, increments,
				  lengthof(increments));
}
