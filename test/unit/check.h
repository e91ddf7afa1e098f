/*-------------------------------------------------------------------------
 *
 * check.h
 *	  What the unit programs and the fuzz targets share.
 *
 * A unit program uses CHECK, which counts and goes on, and ends with
 *
 *		return check_summary();
 *
 * A fuzz target uses MUST, which aborts, so that libFuzzer keeps the input.
 *
 * Copyright (c) 2026, the pg_fence maintainers
 *
 * test/unit/check.h
 *
 *-------------------------------------------------------------------------
 */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* unused in a program that has only one of the two kinds of check */
static int	checks_passed __attribute__((unused));
static int	checks_failed __attribute__((unused));

#define CHECK(condition) \
	check((condition), #condition, __FILE__, __LINE__)

#define MUST(condition) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: does not hold: %s\n", \
					__FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

/*
 * Count one check, and say so if it failed.  Returns the condition, for a
 * test that cannot go on without it.
 */
static inline bool
check(bool condition, const char *text, const char *file, int line)
{
	if (condition)
		checks_passed++;
	else
	{
		checks_failed++;
		printf("%s:%d: failed: %s\n", file, line, text);
	}
	return condition;
}

/*
 * Print the line that test/unit/run adds up.  Returns the exit status.
 */
static inline int
check_summary(void)
{
	printf("%d passed, %d failed\n", checks_passed, checks_failed);
	return checks_failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif							/* CHECK_H */
