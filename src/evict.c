/*-------------------------------------------------------------------------
 *
 * evict.c
 *	  Terminates the backends of older holders.
 *
 * The fence keeps an older holder from committing, but the rows that its
 * open transaction has locked stay locked until it ends, and a frozen client
 * never ends it.
 *
 * This right can be granted, so it must not reach further than that of
 * pg_signal_backend: a superuser's session is ended by superusers only.
 *
 * IDENTIFICATION
 *	  src/evict.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "storage/procarray.h"

#include "args.h"
#include "resource.h"

PG_FUNCTION_INFO_V1(fence_evict);

/* As in pg_signal_backend(); a process without a role is the server's own. */
static bool
may_terminate(const PGPROC *proc)
{
	return superuser() ||
		(OidIsValid(proc->roleId) && !superuser_arg(proc->roleId));
}

/*
 * It may have ended by itself since it was found, and its process id be used
 * by another program.
 */
static bool
terminate(int pid, const FenceName *name)
{
	const PGPROC *proc = BackendPidGetProc(pid);

	if (proc == NULL)
		return false;
	if (!may_terminate(proc))
	{
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("backend %d, an older holder of resource \"%.*s\", remains",
						pid, name->len, name->data),
				 errdetail("It is a session of a superuser."),
				 errhint("Only a superuser may terminate it.")));
		return false;
	}
	ereport(LOG,
			(errmsg("backend %d, an older holder of resource \"%.*s\", terminated by \"%s\"",
					pid, name->len, name->data,
					GetUserNameFromId(GetUserId(), false))));
	return kill(pid, SIGTERM) == 0;
}

/*
 * fence.evict(resource text) returns integer
 *
 * How many backends were told to end, see fence_older_presenters().  They need
 * a moment to do so.
 */
Datum
fence_evict(PG_FUNCTION_ARGS)
{
	FenceName	name;
	FenceRow	row;
	ListCell   *lc;
	int			prepared;
	int			count = 0;

	fence_prevent_read_only("fence.evict()");
	name = fence_arg_name(fcinfo, 0);
	fence_row_read(&name, &row);

	foreach(lc, fence_older_presenters(&name, row.mark, &prepared))
	{
		/* 0: a prepared transaction that stands on the mark */
		if (lfirst_int(lc) != 0 && lfirst_int(lc) != MyProcPid &&
			terminate(lfirst_int(lc), &name))
			count++;
	}
	if (prepared > 0)
		ereport(WARNING,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg_plural("%d prepared transaction of older holders of resource \"%.*s\" remains",
							   "%d prepared transactions of older holders of resource \"%.*s\" remain",
							   prepared, prepared, name.len, name.data),
				 errhint("See pg_prepared_xacts, and use ROLLBACK PREPARED.")));
	PG_RETURN_INT32(count);
}
