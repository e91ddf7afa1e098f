/*-------------------------------------------------------------------------
 *
 * counters.h
 *	  Sets of counters in shared memory, found by a key.
 *
 * IDENTIFICATION
 *	  src/counters.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_COUNTERS_H
#define FENCE_COUNTERS_H

typedef struct FenceCounters FenceCounters;

/* Names one row of counters, within this database. */
typedef struct FenceCounterKey
{
	uint64		hash;
	const void *data;
	int			len;
} FenceCounterKey;

/* So much is added to one counter of a row. */
typedef struct FenceIncrement
{
	int			counter;
	uint64		amount;
} FenceIncrement;

extern Size fence_counters_size(int max, int keysize, int ncounters);
extern void fence_counters_init(FenceCounters *set, int max, int keysize,
								int ncounters, int tranche);
extern void fence_counters_add(FenceCounters *set, const FenceCounterKey *key,
							   const FenceIncrement *increments, int count);
extern void fence_counters_expect(FenceCounters *set,
								  const FenceCounterKey *key);
extern int	fence_counters_max(const FenceCounters *set);
extern void fence_counters_lock(FenceCounters *set);
extern void fence_counters_unlock(FenceCounters *set);
extern bool fence_counters_get(FenceCounters *set, int i, char *key, int *len,
							   uint64 *values);
extern void fence_counters_reset(FenceCounters *set);

#endif							/* FENCE_COUNTERS_H */
