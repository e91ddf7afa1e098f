/*-------------------------------------------------------------------------
 *
 * histogram.h
 *	  Histograms of durations.
 *
 * IDENTIFICATION
 *	  src/histogram.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef FENCE_HISTOGRAM_H
#define FENCE_HISTOGRAM_H

/* Upper bounds, see histogram.c; one more bucket is above them. */
#define FENCE_HISTOGRAM_BOUNDS	30
#define FENCE_HISTOGRAM_BUCKETS	(FENCE_HISTOGRAM_BOUNDS + 1)

extern int	fence_histogram_bucket(int64 duration);

#endif							/* FENCE_HISTOGRAM_H */
