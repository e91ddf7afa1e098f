/*-------------------------------------------------------------------------
 *
 * present.h
 *	  Tokens presented in this transaction.
 *
 * IDENTIFICATION
 *	  src/present.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_PRESENT_H
#define FENCE_PRESENT_H

#include "access/attnum.h"
#include "resource.h"

/* Who has to vouch for the lease behind a token. */
typedef enum FenceLease
{
	FENCE_LEASE_NONE,			/* nobody: only the order counts */
	FENCE_LEASE_POSTGRES		/* fence.resource, now and at commit */
} FenceLease;

/*
 * Where a token came in, for the fields of an error.  All zero for a call of
 * fence.check().
 */
typedef struct FenceSite
{
	Relation	relation;
	AttrNumber	attnum;			/* column, or InvalidAttrNumber */
} FenceSite;

extern void fence_present_init(void);
extern FenceLease fence_lease_parse(const char *lease);

extern void fence_present(const FenceName *name, int64 token,
						  const char *holder, FenceLease lease,
						  const FenceSite *site);
extern int64 fence_presented(const FenceName *name);
extern bool fence_presented_any(void);
extern uint64 fence_present_generation(void);

extern void fence_present_check_move(const FenceName *name,
									 const FenceRow *row);
extern void fence_present_moved(const FenceName *name, int64 token,
								const char *holder);
extern void fence_stale_error(const FenceName *name, int64 token,
							  const FenceRow *row, const FenceSite *site)
			pg_attribute_noreturn();
extern int	fence_site_fields(const FenceSite *site);

#endif							/* FENCE_PRESENT_H */
