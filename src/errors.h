/*-------------------------------------------------------------------------
 *
 * errors.h
 *	  SQLSTATEs of pg_fence, class PF.
 *
 * The class is ours alone: drivers take it for a plain database error, no
 * pool evicts the connection for it, and no retry layer repeats it.
 * Everything that has a standard SQLSTATE keeps that one.
 *
 * IDENTIFICATION
 *	  src/errors.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_ERRORS_H
#define FENCE_ERRORS_H

#include "utils/elog.h"

#define ERRCODE_FENCE_STALE_TOKEN		MAKE_SQLSTATE('P','F','0','0','1')
#define ERRCODE_FENCE_NO_TOKEN			MAKE_SQLSTATE('P','F','0','0','2')
#define ERRCODE_FENCE_OTHER_HOLDER		MAKE_SQLSTATE('P','F','0','0','3')
#define ERRCODE_FENCE_NEVER_ISSUED		MAKE_SQLSTATE('P','F','0','0','4')
#define ERRCODE_FENCE_LEASE_NOT_HELD	MAKE_SQLSTATE('P','F','0','0','5')
#define ERRCODE_FENCE_LEASE_UNVERIFIED	MAKE_SQLSTATE('P','F','0','0','6')
#define ERRCODE_FENCE_STORE_MISCONFIGURED	MAKE_SQLSTATE('P','F','0','0','7')
#define ERRCODE_FENCE_OTHER_REQUEST		MAKE_SQLSTATE('P','F','1','0','1')
#define ERRCODE_FENCE_DUPLICATE_KEY		MAKE_SQLSTATE('P','F','1','0','2')
#define ERRCODE_FENCE_NOT_COMPLETED		MAKE_SQLSTATE('P','F','1','0','3')
#define ERRCODE_FENCE_SEQUENCE_GAP		MAKE_SQLSTATE('P','F','1','0','4')

#endif							/* FENCE_ERRORS_H */
