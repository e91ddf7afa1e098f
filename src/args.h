/*-------------------------------------------------------------------------
 *
 * args.h
 *	  Checked arguments of the SQL functions, and the shape of their results.
 *
 * IDENTIFICATION
 *	  src/args.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_ARGS_H
#define FENCE_ARGS_H

#include "access/tupdesc.h"
#include "fmgr.h"
#include "resource.h"

extern void fence_prevent_read_only(const char *function);
extern void fence_null_error(const char *what);
extern void fence_arg_not_null(FunctionCallInfo fcinfo, int n,
							   const char *what);
extern char *fence_datum_text(Datum datum, const char *what, int least,
							  int limit);
extern FenceName fence_datum_name(Datum datum, bool isnull);
extern FenceName fence_arg_name(FunctionCallInfo fcinfo, int n);
extern int64 fence_arg_token(FunctionCallInfo fcinfo, int n);
extern int32 fence_arg_max_rows(FunctionCallInfo fcinfo, int n);
extern char *fence_arg_text(FunctionCallInfo fcinfo, int n, const char *what,
							int limit, bool null_allowed);
extern int64 fence_arg_duration(FunctionCallInfo fcinfo, int n,
								const char *what, int64 least, int64 most);
extern Datum fence_result_row(FunctionCallInfo fcinfo, Datum *values,
							  bool *nulls);

#endif							/* FENCE_ARGS_H */
