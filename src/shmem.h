/*-------------------------------------------------------------------------
 *
 * shmem.h
 *	  Shared memory of pg_fence.
 *
 * IDENTIFICATION
 *	  src/shmem.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_SHMEM_H
#define FENCE_SHMEM_H

#include "storage/lwlock.h"

/* What is in there; each part has a lock of its own. */
typedef enum FencePart
{
	FENCE_PART_RESOURCES,		/* counters per resource */
	FENCE_PART_TABLES,			/* counters per table */
	FENCE_PART_SERVERS,			/* counters per Redis server */
	FENCE_PART_BREAKERS,		/* Redis servers that are left alone */
	FENCE_PART_REJECTIONS,		/* the last refused writes */
	FENCE_PART_QUEUE			/* who waits for a lease */
} FencePart;

#define FENCE_PARTS	(FENCE_PART_QUEUE + 1)

/* Settings that count when the memory is made. */
typedef struct FenceLimits
{
	int			max_resources;
	int			max_rejections;
} FenceLimits;

extern void fence_shmem_init(void);
extern bool fence_shared_attach(void);
extern void *fence_shared(FencePart part);
extern void *fence_shared_required(FencePart part);

#endif							/* FENCE_SHMEM_H */
