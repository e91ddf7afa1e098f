/*-------------------------------------------------------------------------
 *
 * idempotency.c
 *	  SQL functions for idempotency keys.
 *
 * IDENTIFICATION
 *	  src/idempotency.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/memutils.h"

#include "args.h"
#include "canonical.h"
#include "claim.h"
#include "constraint.h"
#include "idempotency.h"
#include "present.h"
#include "prune.h"

PG_FUNCTION_INFO_V1(fence_claim_sql);
PG_FUNCTION_INFO_V1(fence_claim_many);
PG_FUNCTION_INFO_V1(fence_complete_sql);
PG_FUNCTION_INFO_V1(fence_once);
PG_FUNCTION_INFO_V1(fence_lookup);
PG_FUNCTION_INFO_V1(fence_admit);

/* How long a key may be kept, in microseconds. */
#define RETAIN_MIN	INT64CONST(1000)
#define RETAIN_MAX	(3650 * USECS_PER_DAY)

/* A jsonb cannot have more bytes than this. */
#define RESPONSE_MAX	JENTRY_OFFLENMASK

/* pg_fence.max_response: bytes of a response, as jsonb */
static int	max_response = 8192;

static FenceRequest
request_of_datum(Datum datum, bool isnull)
{
	FenceRequest request = {NULL, 0};
	uint8	   *digest;

	if (!isnull)
	{
		digest = palloc(FENCE_DIGEST_LENGTH);
		fence_canonical_digest(DatumGetJsonbP(datum), digest);
		request.digest = digest;
		request.len = FENCE_DIGEST_LENGTH;
	}
	return request;
}

static FenceClaimRequest
claim_request(FunctionCallInfo fcinfo, FenceClaimState state)
{
	FenceClaimRequest request = {0};

	fence_prevent_in_constraint(fcinfo->flinfo);
	request.retain = FENCE_RETAIN_DEFAULT;
	request.state = state;
	request.statement = fence_statement(fcinfo->flinfo);
	return request;
}

/*
 * fence.claim(key text, scope text, request jsonb, retain interval)
 *		returns (fresh boolean, response jsonb, claimed_at timestamptz)
 *
 * See fence_claim_with().
 */
Datum
fence_claim_sql(PG_FUNCTION_ARGS)
{
	FenceKey	key;
	FenceClaimRequest request;
	FenceClaimResult result;
	Datum		values[3];
	bool		nulls[3] = {false};

	fence_prevent_read_only("fence.claim()");
	key = fence_arg_key(fcinfo, 1, 0);
	request = claim_request(fcinfo, FENCE_CLAIM_OPEN);
	request.request = request_of_datum(PG_GETARG_DATUM(2), PG_ARGISNULL(2));
	request.retain = fence_arg_duration(fcinfo, 3, "retain", RETAIN_MIN,
										RETAIN_MAX);
	fence_verdict_raise(ERROR, fence_claim(&key, &request, &result), NULL);

	values[0] = BoolGetDatum(result.fresh);
	values[1] = result.response;
	nulls[1] = !result.has_response;
	values[2] = TimestampTzGetDatum(result.claimed_at);
	PG_RETURN_DATUM(fence_result_row(fcinfo, values, nulls));
}

/*
 * fence.once(key text, scope text) returns boolean
 *
 * A claim that needs no completion: true the first time, and for every row of
 * the statement that asks.
 */
Datum
fence_once(PG_FUNCTION_ARGS)
{
	FenceKey	key;
	FenceClaimRequest request;
	FenceClaimResult result;

	fence_prevent_read_only("fence.once()");
	key = fence_arg_key(fcinfo, 1, 0);
	request = claim_request(fcinfo, FENCE_CLAIM_DONE);
	fence_verdict_raise(ERROR, fence_claim(&key, &request, &result), NULL);
	PG_RETURN_BOOL(result.fresh);
}

static void
check_response(const Jsonb *response)
{
	int			size = VARSIZE(response);

	if (size > max_response)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("response is too large"),
				 errdetail("It has %d bytes as jsonb, the limit is %d.",
						   size, max_response),
				 errhint("Store what identifies the result instead of the result, or raise \"pg_fence.max_response\".")));
}

/*
 * fence.complete(key text, response jsonb, scope text) returns jsonb
 *
 * Completes an open claim of this transaction, 55000 if there is none; returns
 * the response.  SQL NULL is stored as such.
 */
Datum
fence_complete_sql(PG_FUNCTION_ARGS)
{
	FenceKey	key;
	Jsonb	   *response;

	fence_prevent_read_only("fence.complete()");
	key = fence_arg_key(fcinfo, 2, 0);
	if (PG_ARGISNULL(1))
	{
		fence_complete(&key, false, (Datum) 0);
		PG_RETURN_NULL();
	}
	response = PG_GETARG_JSONB_P(1);
	check_response(response);
	fence_complete(&key, true, JsonbPGetDatum(response));
	PG_RETURN_JSONB_P(response);
}

/*
 * fence.lookup(key text, scope text)
 *		returns (response jsonb, claimed_at timestamptz)
 *
 * What the statement's snapshot knows about the key; nulls if nothing.  Works
 * on a standby, which may be behind.
 */
Datum
fence_lookup(PG_FUNCTION_ARGS)
{
	FenceKey	key = fence_arg_key(fcinfo, 1, 0);
	FenceUnique claims;
	FenceClaimRow row = {0};
	Datum		result;
	Datum		values[2];
	bool		nulls[2] = {true, true};

	fence_claims_open(&claims, AccessShareLock);
	if (fence_unique_look_up(&claims, UUIDPGetDatum(&key.id)))
	{
		fence_claim_row_read(&claims, &key, &row);
		nulls[0] = !row.has_response;
		nulls[1] = false;
	}
	values[0] = row.response;
	values[1] = TimestampTzGetDatum(row.claimed_at);
	result = fence_result_row(fcinfo, values, nulls);
	fence_unique_close(&claims);
	PG_RETURN_DATUM(result);
}

/* One of the keys that claim_many() is to claim. */
typedef struct ManyClaim
{
	FenceKey	key;
	FenceRequest request;
	FenceClaimResult result;
} ManyClaim;

/* Equal ones stay in the order in which they came. */
static int
compare_claims(const void *a, const void *b)
{
	const ManyClaim *left = *(ManyClaim *const *) a;
	const ManyClaim *right = *(ManyClaim *const *) b;
	int			order = memcmp(left->key.id.data, right->key.id.data,
							   UUID_LEN);

	return order != 0 ? order : left < right ? -1 : 1;
}

/* One of them, leaving nothing behind in memory but its result. */
static void
claim_one(FenceUnique *claims, ManyClaim *claim, FenceClaimRequest *request,
		  MemoryContext scratch)
{
	MemoryContext oldcxt = MemoryContextSwitchTo(scratch);
	FenceClaimResult *result = &claim->result;

	request->request = claim->request;
	fence_verdict_raise(ERROR, fence_claim_with(claims, &claim->key, request,
												result), NULL);
	MemoryContextSwitchTo(oldcxt);
	if (result->has_response)
		result->response = datumCopy(result->response, false, -1);
	MemoryContextReset(scratch);
}

/*
 * Claims in the order of the ids: two calls that have keys in common do not
 * wait for each other in a circle.  A key that comes twice is claimed the
 * first time only.
 */
static void
claim_sorted(ManyClaim *many, int count, FenceClaimRequest *request)
{
	ManyClaim **sorted = palloc(Max(count, 1) * sizeof(ManyClaim *));
	MemoryContext scratch = AllocSetContextCreate(CurrentMemoryContext,
												  "pg_fence claim_many",
												  ALLOCSET_DEFAULT_SIZES);
	FenceUnique claims;
	int			i;

	for (i = 0; i < count; i++)
		sorted[i] = &many[i];
	qsort(sorted, count, sizeof(ManyClaim *), compare_claims);

	fence_claims_open(&claims, RowExclusiveLock);
	for (i = 0; i < count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		claim_one(&claims, sorted[i], request, scratch);
		if (i > 0 && memcmp(sorted[i]->key.id.data,
							sorted[i - 1]->key.id.data, UUID_LEN) == 0)
			sorted[i]->result.fresh = false;
	}
	fence_unique_close(&claims);
	MemoryContextDelete(scratch);
}

static void
deconstruct_list(FunctionCallInfo fcinfo, int n, const char *what, Oid type,
				 Datum **values, bool **nulls, int *count)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(n);

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must have one dimension", what)));
	deconstruct_array(array, type, -1, false, TYPALIGN_INT, values, nulls,
					  count);
}

/* The arguments (keys text[], scope text, requests jsonb[]). */
static ManyClaim *
many_of_arguments(FunctionCallInfo fcinfo, int *count)
{
	const char *scope = fence_arg_scope(fcinfo, 1);
	Datum	   *keys;
	bool	   *key_nulls;
	Datum	   *requests;
	bool	   *request_nulls;
	int			request_count;
	ManyClaim  *many;
	int			i;

	fence_arg_not_null(fcinfo, 0, "array of idempotency keys");
	deconstruct_list(fcinfo, 0, "array of idempotency keys", TEXTOID,
					 &keys, &key_nulls, count);
	many = palloc0(Max(*count, 1) * sizeof(ManyClaim));
	for (i = 0; i < *count; i++)
		many[i].key = fence_datum_key(scope, keys[i], key_nulls[i]);
	if (PG_ARGISNULL(2))
		return many;

	deconstruct_list(fcinfo, 2, "array of requests", JSONBOID,
					 &requests, &request_nulls, &request_count);
	if (request_count != *count)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("there must be as many requests as idempotency keys"),
				 errdetail("There are %d requests and %d keys.",
						   request_count, *count),
				 errhint("A request may be null.")));
	for (i = 0; i < *count; i++)
		many[i].request = request_of_datum(requests[i], request_nulls[i]);
	return many;
}

/*
 * fence.claim_many(keys text[], scope text, requests jsonb[])
 *		returns table (key text, fresh boolean, response jsonb)
 *
 * A row for each element, in their order.  All claims are kept for the
 * default time.
 */
Datum
fence_claim_many(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	FenceClaimRequest request;
	ManyClaim  *many;
	int			count;
	int			i;

	fence_prevent_read_only("fence.claim_many()");
	many = many_of_arguments(fcinfo, &count);
	request = claim_request(fcinfo, FENCE_CLAIM_OPEN);
	claim_sorted(many, count, &request);

	InitMaterializedSRF(fcinfo, 0);
	for (i = 0; i < count; i++)
	{
		const FenceClaimResult *result = &many[i].result;
		Datum		values[3];
		bool		nulls[3] = {false};

		values[0] = CStringGetTextDatum(many[i].key.key);
		values[1] = BoolGetDatum(result->fresh);
		values[2] = result->response;
		nulls[2] = !result->has_response;
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	PG_RETURN_VOID();
}

/*
 * fence.admit(resource text, token bigint, key text, request jsonb,
 *			   holder text, lease text)
 *		returns (fresh boolean, response jsonb)
 *
 * Claims the key, in the scope of the resource, and presents the token for
 * what is to be done under it.  The key comes first: to repeat what is
 * committed already is no write, and harms nobody when the token is stale by
 * now.
 */
Datum
fence_admit(PG_FUNCTION_ARGS)
{
	const char *resource;
	FenceToken	token = {0};
	FenceKey	key;
	FenceClaimRequest request;
	FenceClaimResult result;
	const FenceVerdict *verdict;
	Datum		values[2];
	bool		nulls[2] = {false};

	fence_prevent_read_only("fence.admit()");
	resource = fence_arg_text(fcinfo, 0, "resource name", FENCE_RESOURCE_MAX,
							  false);
	token.name = fence_name(resource, strlen(resource));
	token.number = fence_arg_token(fcinfo, 1);
	token.holder = fence_arg_text(fcinfo, 4, "holder", FENCE_RESOURCE_MAX,
								  true);
	token.lease = fence_arg_text(fcinfo, 5, "lease", NAMEDATALEN, true);
	key = fence_datum_key(resource, PG_GETARG_DATUM(2), PG_ARGISNULL(2));
	request = claim_request(fcinfo, FENCE_CLAIM_OPEN);
	request.request = request_of_datum(PG_GETARG_DATUM(3), PG_ARGISNULL(3));

	fence_verdict_raise(ERROR, fence_claim(&key, &request, &result), NULL);
	if (!result.fresh)
		fence_replayed_note(resource, &request.statement);
	else if ((verdict = fence_present(&token)) != NULL)
		fence_verdict_report(ERROR, verdict, NULL);

	values[0] = BoolGetDatum(result.fresh);
	values[1] = result.response;
	nulls[1] = !result.has_response;
	PG_RETURN_DATUM(fence_result_row(fcinfo, values, nulls));
}

/*
 * Once per backend.
 */
void
fence_idempotency_init(void)
{
	DefineCustomIntVariable("pg_fence.max_response",
							"Largest response that a completed claim may store.",
							"Counted as jsonb, before compression.",
							&max_response, 8192, 0, RESPONSE_MAX, PGC_SUSET,
							GUC_UNIT_BYTE, NULL, NULL, NULL);
	/* Of these two, the later one is asked first before a commit. */
	fence_prune_init();
	fence_claimed_init();
}
