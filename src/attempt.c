/*-------------------------------------------------------------------------
 *
 * attempt.c
 *	  Something that may fail without failing the transaction.
 *
 * IDENTIFICATION
 *	  src/attempt.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "attempt.h"

static bool
tolerates(int tolerated, int sqlstate)
{
	if (tolerated == FENCE_ANY_ERROR)
		return sqlstate != ERRCODE_QUERY_CANCELED;
	return sqlstate == tolerated;
}

/*
 * Runs the action in a subtransaction of its own and returns what it returns.
 * If that is false, the subtransaction is rolled back, locks and all.
 *
 * An error of the tolerated SQLSTATE counts as false, and is left in *error;
 * any other is raised again, after the subtransaction has gone: whoever
 * catches it further up expects to find his own one.
 */
bool
fence_attempt(FenceAction action, void *arg, int tolerated, ErrorData **error)
{
	MemoryContext oldcxt = CurrentMemoryContext;
	ResourceOwner oldowner = CurrentResourceOwner;
	ErrorData  *volatile caught = NULL;
	volatile bool good = false;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(oldcxt);
	PG_TRY();
	{
		good = action(arg);
		if (good)
			ReleaseCurrentSubTransaction();
		else
			RollbackAndReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(oldcxt);
		caught = CopyErrorData();
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		good = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(oldcxt);
	CurrentResourceOwner = oldowner;

	if (caught != NULL && !tolerates(tolerated, caught->sqlerrcode))
		ReThrowError(caught);
	*error = caught;
	return good;
}
