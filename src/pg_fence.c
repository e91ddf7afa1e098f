/*-------------------------------------------------------------------------
 *
 * pg_fence.c
 *	  Loading of the library.
 *
 * IDENTIFICATION
 *	  src/pg_fence.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"

#include "constraint.h"
#include "fast_update.h"
#include "guard.h"
#include "history.h"
#include "idempotency.h"
#include "policy.h"
#include "present.h"
#include "resource.h"
#include "shmem.h"
#include "table.h"
#include "wait_queue.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	fence_table_init();
	fence_resource_init();

	/* Of these two, the later one is asked first before a commit. */
	fence_present_init();
	fence_idempotency_init();
	fence_policy_init();
	fence_guard_init();
	fence_fast_update_init();
	fence_history_init();
	fence_constraint_init();
	fence_wait_queue_start();
	fence_shmem_init();

	MarkGUCPrefixReserved("pg_fence");
}
