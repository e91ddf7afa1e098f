/*-------------------------------------------------------------------------
 *
 * claimed.c
 *	  Claims that this transaction has made.
 *
 * Kept to tell what a second look at an own claim means, and to see before
 * the commit that none is left open: once committed, a claim without its
 * result would be replayed as if the operation had been done.
 *
 * Each claim has a stack of notes, the newest on top, and all notes of the
 * transaction are in one list, newest first.  A note carries the
 * subtransaction that made it, so that ROLLBACK TO brings back exactly what
 * was true before, as it does with the rows.  Those of a subtransaction are
 * the first ones of the list: ending it costs what it has claimed, however
 * much the transaction has.
 *
 * IDENTIFICATION
 *	  src/claimed.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "claim_row.h"
#include "claimed.h"
#include "errors.h"
#include "table.h"

/* What was noted about a claim; it lives as long as the transaction. */
typedef struct Note
{
	FenceClaim	claim;
	SubTransactionId subid;		/* whose rollback takes it back */
	struct ClaimedKey *known;
	struct Note *below;			/* the one before about the same key */
	struct Note *older;			/* the one before about any key */
} Note;

typedef struct ClaimedKey
{
	FenceKey	key;
	Note	   *top;			/* NULL until it has been made */
} ClaimedKey;

typedef struct ClaimedEntry
{
	pg_uuid_t	id;
	ClaimedKey *known;			/* entries move about, notes point at this */
	char		status;			/* of simplehash */
} ClaimedEntry;

/* The end of an id is a hash, its beginning may be a time. */
static inline uint32
hash_id(const pg_uuid_t *id)
{
	uint32		hash;

	memcpy(&hash, id->data + UUID_LEN - sizeof(hash), sizeof(hash));
	return hash;
}

#define SH_PREFIX claimed
#define SH_ELEMENT_TYPE ClaimedEntry
#define SH_KEY_TYPE pg_uuid_t
#define SH_KEY id
#define SH_HASH_KEY(tb, id) hash_id(&(id))
#define SH_EQUAL(tb, a, b) (memcmp((a).data, (b).data, UUID_LEN) == 0)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* All NULL unless this transaction has claimed something. */
static MemoryContext claimed_cxt = NULL;
static claimed_hash *claimed_keys = NULL;
static Note *newest = NULL;

static ClaimedKey *
find_key(const FenceKey *key)
{
	ClaimedEntry *entry;

	if (claimed_keys == NULL)
		return NULL;
	entry = claimed_lookup(claimed_keys, key->id);
	return entry != NULL ? entry->known : NULL;
}

static ClaimedKey *
add_key(const FenceKey *key)
{
	ClaimedKey *known;
	bool		found;

	if (claimed_keys == NULL)
	{
		claimed_cxt = AllocSetContextCreate(TopTransactionContext,
											"pg_fence claims",
											ALLOCSET_START_SMALL_SIZES);
		claimed_keys = claimed_create(claimed_cxt, 16, NULL);
	}
	known = MemoryContextAlloc(claimed_cxt, sizeof(ClaimedKey));
	known->key.scope = MemoryContextStrdup(claimed_cxt, key->scope);
	known->key.key = MemoryContextStrdup(claimed_cxt, key->key);
	known->key.id = key->id;
	known->top = NULL;
	claimed_insert(claimed_keys, key->id, &found)->known = known;
	return known;
}

/*
 * What is known about this transaction's own claim on the key, NULL if it has
 * made none.
 */
const FenceClaim *
fence_claimed(const FenceKey *key)
{
	ClaimedKey *known = find_key(key);

	return known != NULL && known->top != NULL ? &known->top->claim : NULL;
}

/*
 * From now on this is true of the key, until the current subtransaction is
 * rolled back.
 */
void
fence_claimed_note(const FenceKey *key, const FenceClaim *claim)
{
	ClaimedKey *known = find_key(key);
	Note	   *note;

	if (known == NULL)
		known = add_key(key);
	note = MemoryContextAlloc(claimed_cxt, sizeof(Note));
	note->claim = *claim;
	note->subid = GetCurrentSubTransactionId();
	note->known = known;
	note->below = known->top;
	note->older = newest;
	known->top = note;
	newest = note;
}

/*
 * What stands for the replays of a resource among the claims.  No key is
 * blank, so it is nobody else's.
 */
static FenceKey
replay_key(const char *resource)
{
	return fence_key(resource, " ");
}

/*
 * The statement was told by admit() that what it is to do has been done.
 */
void
fence_replayed_note(const char *resource, const FenceStatement *statement)
{
	FenceKey	key;
	FenceClaim	claim = {0};

	if (fence_replayed(resource, statement))
		return;
	key = replay_key(resource);
	claim.state = FENCE_CLAIM_DONE;
	claim.statement = *statement;
	fence_claimed_note(&key, &claim);
}

bool
fence_replayed(const char *resource, const FenceStatement *statement)
{
	const FenceClaim *note = NULL;
	FenceKey	key;

	if (claimed_keys != NULL)
	{
		key = replay_key(resource);
		note = fence_claimed(&key);
	}
	return note != NULL && fence_same_statement(&note->statement, statement);
}

/* The next claim in this state, from a note of the list on; or NULL. */
static const Note *
next_claim(const Note *note, FenceClaimState state)
{
	while (note != NULL &&
		   (note != note->known->top || note->claim.state != state))
		note = note->older;
	return note;
}

/*
 * The operation may have found nothing to do, or the writer may have
 * forgotten to say what came of it.
 */
static void
refuse_open_claims(void)
{
	const Note *open = next_claim(newest, FENCE_CLAIM_OPEN);
	const Note *note;
	int			count = 0;

	if (open == NULL)
		return;
	for (note = open; note != NULL;
		 note = next_claim(note->older, FENCE_CLAIM_OPEN))
		count++;
	ereport(ERROR,
			(errcode(ERRCODE_FENCE_NOT_COMPLETED),
			 errmsg("idempotency key \"%s\" was claimed but not completed",
					open->known->key.key),
			 errdetail_plural("The transaction has %d open claim, in scope \"%s\".",
							  "The transaction has %d open claims, the last one in scope \"%s\".",
							  count, count, open->known->key.scope),
			 errhint("Call fence.complete() in the transaction that claims, also if there was nothing to do; or claim with fence.once().")));
}

/*
 * A guard has claimed keys for rows that then were not written, because of ON
 * CONFLICT DO NOTHING or another trigger.  Nothing has happened under these
 * keys, so they are free again; as they are if the transaction has dropped the
 * extension.
 */
static void
drop_unwritten_claims(void)
{
	const Note *note = next_claim(newest, FENCE_CLAIM_UNWRITTEN);
	FenceUnique claims;

	if (note == NULL || !fence_claims_exist())
		return;
	fence_claims_open(&claims, RowExclusiveLock);
	for (; note != NULL; note = next_claim(note->older, FENCE_CLAIM_UNWRITTEN))
	{
		CHECK_FOR_INTERRUPTS();
		if (fence_unique_find(&claims,
							  UUIDPGetDatum(&note->known->key.id)) &&
			!fence_table_delete(claims.heap, &claims.slot->tts_tid))
			elog(ERROR, "could not delete the claim for a row that was not written");
	}
	fence_unique_close(&claims);
}

static void
xact_callback(XactEvent event, void *arg)
{
	if (claimed_keys == NULL)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			refuse_open_claims();
			drop_unwritten_claims();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			/* The memory goes with the transaction. */
			claimed_keys = NULL;
			claimed_cxt = NULL;
			newest = NULL;
			break;
		default:
			break;
	}
}

/*
 * The subtransaction of the newest note is rolled back.  Nothing remains of
 * it: a transaction may try many claims in savepoints.
 */
static void
take_back(Note *note)
{
	ClaimedKey *known = note->known;

	newest = note->older;
	known->top = note->below;
	pfree(note);
	if (known->top != NULL)
		return;
	(void) claimed_delete(claimed_keys, known->key.id);
	pfree(unconstify(char *, known->key.scope));
	pfree(unconstify(char *, known->key.key));
	pfree(known);
}

/*
 * Gives the notes of a subtransaction to its parent, or takes them back.
 */
static void
subxact_callback(SubXactEvent event, SubTransactionId subid,
				 SubTransactionId parent, void *arg)
{
	Note	   *note;

	if (event == SUBXACT_EVENT_COMMIT_SUB)
	{
		for (note = newest; note != NULL && note->subid == subid;
			 note = note->older)
			note->subid = parent;
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
fence_claimed_init(void)
{
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}
