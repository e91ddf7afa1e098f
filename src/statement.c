/*-------------------------------------------------------------------------
 *
 * statement.c
 *	  Which statement is it that calls a function?
 *
 * A statement that claims a key row by row gets the same answer for each row,
 * and the next statement another one.  PostgreSQL has no number for the
 * execution of a statement that a function could ask for, so several marks
 * together have to do:
 *
 *	cid			The command number of the active snapshot.  A claim raises the
 *				current one, so a statement that starts after it has a higher
 *				one.  This tells loops and calls in PL/pgSQL apart, whatever
 *				else they share.
 *	portal		A cursor that was opened before the claim can have the same
 *				command number, but not the same portal.
 *	execution	A function that is called before anything was written has the
 *				command number of its caller, but an executor of its own.
 *	expression	When a row was changed meanwhile, the executor judges it once
 *				more, and uses another executor for that (EvalPlanQual).  The
 *				plan is the same.
 *
 * IDENTIFICATION
 *	  src/statement.c
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "tcop/pquery.h"
#include "utils/snapmgr.h"

#include "statement.h"

/*
 * The statement that the function or trigger is called by.
 */
FenceStatement
fence_statement(const FmgrInfo *flinfo)
{
	FenceStatement statement;

	statement.cid = ActiveSnapshotSet() ? GetActiveSnapshot()->curcid :
		GetCurrentCommandId(false);
	statement.portal = ActivePortal;
	statement.execution = flinfo->fn_mcxt;
	statement.expression = flinfo->fn_expr;
	return statement;
}

/*
 * Are they the same, in one transaction?
 */
bool
fence_same_statement(const FenceStatement *a, const FenceStatement *b)
{
	return a->cid == b->cid && a->portal == b->portal &&
		(a->execution == b->execution ||
		 (a->expression != NULL && a->expression == b->expression));
}
