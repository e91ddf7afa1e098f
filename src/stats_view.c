/*-------------------------------------------------------------------------
 *
 * stats_view.c
 *	  SQL functions behind the statistics views.
 *
 * IDENTIFICATION
 *	  src/stats_view.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "counters.h"
#include "rejection.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(fence_stat_resources);
PG_FUNCTION_INFO_V1(fence_stat_tables);
PG_FUNCTION_INFO_V1(fence_stat_redis);
PG_FUNCTION_INFO_V1(fence_stat_reset);

#define MAX_COUNTERS	FENCE_RESOURCE_COUNTERS
#define MAX_COLUMNS		(FENCE_RESOURCE_COUNTERS + 1)

/* What the rows of a view are made of. */
typedef struct RowMaker
{
	ReturnSetInfo *rsinfo;
	int			column;			/* the next one */
	Datum		values[MAX_COLUMNS];
	bool		nulls[MAX_COLUMNS];
} RowMaker;

static void
put(RowMaker *maker, Datum value, bool isnull)
{
	maker->values[maker->column] = value;
	maker->nulls[maker->column] = isnull;
	maker->column++;
}

static void
put_counters(RowMaker *maker, const uint64 *counters, int count)
{
	int			i;

	for (i = 0; i < count; i++)
		put(maker, Int64GetDatum(counters[i]), false);
}

static void
put_histogram(RowMaker *maker, const uint64 *counters)
{
	Datum		elements[FENCE_HISTOGRAM_BUCKETS];
	int			i;

	for (i = 0; i < FENCE_HISTOGRAM_BUCKETS; i++)
		elements[i] = Int64GetDatum(counters[i]);
	put(maker, PointerGetDatum(construct_array(elements,
											   FENCE_HISTOGRAM_BUCKETS,
											   INT8OID, sizeof(int64),
											   FLOAT8PASSBYVAL,
											   TYPALIGN_DOUBLE)), false);
}

static void
put_resource(RowMaker *maker, const char *key, int len, const uint64 *counters)
{
	put(maker, PointerGetDatum(cstring_to_text_with_len(key, len)), len == 0);
	put_counters(maker, &counters[FENCE_RESOURCE_ATTEMPTS],
				 FENCE_RESOURCE_OBSERVED - FENCE_RESOURCE_ATTEMPTS);
	put_counters(maker, &counters[FENCE_RESOURCE_CHECKS], 1);
	put_counters(maker, &counters[FENCE_RESOURCE_OBSERVED],
				 FENCE_RESOURCE_WAIT_TIME - FENCE_RESOURCE_OBSERVED);
	put(maker, fence_interval(counters[FENCE_RESOURCE_WAIT_TIME]), false);
	put(maker, fence_interval(counters[FENCE_RESOURCE_HOLD_TIME]), false);
	put_histogram(maker, &counters[FENCE_RESOURCE_WAITS]);
	put_histogram(maker, &counters[FENCE_RESOURCE_HOLDS]);
}

static void
put_oid(RowMaker *maker, const char *key, int len)
{
	Oid			oid = InvalidOid;

	memcpy(&oid, key, len);
	put(maker, ObjectIdGetDatum(oid), len == 0);
}

static void
put_table(RowMaker *maker, const char *key, int len, const uint64 *counters)
{
	put_oid(maker, key, len);
	put_counters(maker, counters, FENCE_TABLE_COUNTERS);
}

static void
put_server(RowMaker *maker, const char *key, int len, const uint64 *counters)
{
	put_oid(maker, key, len);
	put_counters(maker, counters, FENCE_SERVER_TIME);
	put(maker, fence_interval(counters[FENCE_SERVER_TIME]), false);
	put_histogram(maker, &counters[FENCE_SERVER_CALLS]);
}

typedef void (*PutRow) (RowMaker *maker, const char *key, int len,
						const uint64 *counters);

/* A row of counters, copied. */
typedef struct RowCopy
{
	int			len;			/* of the key */
	char		key[FENCE_RESOURCE_MAX];
	uint64		counters[MAX_COUNTERS];
} RowCopy;

/*
 * Copies all rows of this database at once.  Who needs a new row waits no
 * longer than that.
 */
static RowCopy *
copy_all(FenceCounters *set, int *count)
{
	int			max = fence_counters_max(set);
	RowCopy    *copies;
	int			i;

	copies = MemoryContextAllocHuge(CurrentMemoryContext,
									mul_size(max, sizeof(RowCopy)));
	*count = 0;
	fence_counters_lock(set);
	for (i = 0; i < max; i++)
	{
		RowCopy    *copy = &copies[*count];

		*count += fence_counters_get(set, i, copy->key, &copy->len,
									 copy->counters);
	}
	fence_counters_unlock(set);
	return copies;
}

/*
 * One row for each row of counters of this database.  That of the empty key,
 * what others have had to give way to, has a null name.
 */
static void
put_all(FunctionCallInfo fcinfo, FencePart part, PutRow put_row)
{
	int			count;
	RowCopy    *copies = copy_all(fence_shared_required(part), &count);
	RowMaker	maker;
	int			i;

	InitMaterializedSRF(fcinfo, 0);
	maker.rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	for (i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		maker.column = 0;
		put_row(&maker, copies[i].key, copies[i].len, copies[i].counters);
		tuplestore_putvalues(maker.rsinfo->setResult, maker.rsinfo->setDesc,
							 maker.values, maker.nulls);
	}
	pfree(copies);
}

/*
 * fence.stat_resources(), behind the view.  Times as intervals, histograms
 * with the bounds of fence.histogram_bounds().  55000 without shared memory.
 */
Datum
fence_stat_resources(PG_FUNCTION_ARGS)
{
	put_all(fcinfo, FENCE_PART_RESOURCES, put_resource);
	PG_RETURN_VOID();
}

/*
 * fence.stat_tables(), the same per table
 */
Datum
fence_stat_tables(PG_FUNCTION_ARGS)
{
	put_all(fcinfo, FENCE_PART_TABLES, put_table);
	PG_RETURN_VOID();
}

/*
 * fence.stat_redis(), the same per server
 */
Datum
fence_stat_redis(PG_FUNCTION_ARGS)
{
	put_all(fcinfo, FENCE_PART_SERVERS, put_server);
	PG_RETURN_VOID();
}

/*
 * fence.stat_reset()
 *
 * Sets all counters of this database to zero and empties fence.rejections.
 */
Datum
fence_stat_reset(PG_FUNCTION_ARGS)
{
	fence_counters_reset(fence_shared_required(FENCE_PART_RESOURCES));
	fence_counters_reset(fence_shared_required(FENCE_PART_TABLES));
	fence_counters_reset(fence_shared_required(FENCE_PART_SERVERS));
	fence_rejections_reset();
	PG_RETURN_VOID();
}
