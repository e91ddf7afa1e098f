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

#include "guard.h"
#include "policy.h"
#include "present.h"
#include "resource.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	fence_resource_init();
	fence_present_init();
	fence_policy_init();
	fence_guard_init();

	MarkGUCPrefixReserved("pg_fence");
}
