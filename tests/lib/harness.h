/*
 * What every C test program shares: cmocka, main(), a deadline, and a check that all cases together
 * leave no file descriptor and no child behind.
 */
#ifndef DL_TEST_HARNESS_H
#define DL_TEST_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Meson takes a case that cmocka skips for one that failed: where this machine or this build lacks
 * something, a case says so and returns. */
#undef skip

#include "proto/common/base.h"

/* Seconds after which a test program kills itself; generous, for loaded machines. In CI it has five
 * times as long, as ./dev has it for Meson's limits. */
enum { TEST_DEADLINE_S = 100 };

/* main() calls these. */
void harness_begin(void);                         /* sets the alarm, remembers open descriptors */
int harness_end(const char *program, int failed); /* adds a failure for what was left behind */

int harness_count_fds(void); /* open descriptors of this process */

/* The step of a test that tries all there is: each byte that may be damaged, each width. 1, and 7
 * in quick runs ($DLOADER_TEST_QUICK): a prime, so that tries by `i % 8` have all of their turns.
 */
size_t harness_stride(void);

/* Whether a run has this one of many tries that are alike, such as a seed's: each, or, with
 * $DLOADER_TEST_TURN, 0 to 3, each fourth, and the other turns have the others. */
bool harness_has(uint64_t number);

/* A fresh directory under $TMPDIR, removed with all in it at exit. Static memory. */
const char *harness_tmpdir(void);

/* The path of a name below harness_tmpdir(), in static memory (8 in turn). */
const char *harness_below(const char *name);

/* Writes a file there, with the directories that it takes; returns its path as harness_below(). */
const char *harness_file(const char *name, const void *data, size_t len);
const char *harness_text(const char *name, const char *text);

/* A case, with what sets up and tears down if it has that:
 *
 *   TEST(test_name, setup, teardown)
 *   {
 *       struct fixture *fixture = *state; ...
 *
 * They run in the order in which they stand in the file.
 */
#define TEST(name, ...)                                                 \
    static void name(void **state);                                     \
    __attribute__((constructor)) static void name##_is_here(void)       \
    {                                                                   \
        static const CMFixtureFunction around[3] = {NULL, __VA_ARGS__}; \
        harness_case(#name, name, around + 1);                          \
    }                                                                   \
    static void name(void **state)

/* What runs before the first case and after the last; NULL for none. */
#define TEST_GROUP(setup, teardown)                              \
    __attribute__((constructor)) static void group_is_here(void) \
    {                                                            \
        harness_group(setup, teardown);                          \
    }

/* What runs before all that: BEFORE_TESTS { ... }. It may exit, with 77 if there is nothing to
 * test. */
#define BEFORE_TESTS __attribute__((constructor)) static void before_tests(void)

/* For TEST() and TEST_GROUP(). */
void harness_case(const char *name, CMUnitTestFunction run, const CMFixtureFunction around[2]);
void harness_group(CMFixtureFunction setup, CMFixtureFunction teardown);

#endif
