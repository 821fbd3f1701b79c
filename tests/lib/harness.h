/*
 * What every C test program shares: cmocka, a deadline, and a check that a group leaves no file
 * descriptor and no child behind.
 *
 *   static const struct CMUnitTest tests[] = { cmocka_unit_test(...), ... };
 *   TEST_MAIN(tests)
 */
#ifndef DL_TEST_HARNESS_H
#define DL_TEST_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/common/base.h"

/* Seconds after which a test program kills itself; generous, for loaded machines. */
enum { TEST_DEADLINE_S = 100 };

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

/* Writes a file below harness_tmpdir(); returns its path in static memory (8 in turn). */
const char *harness_file(const char *name, const void *data, size_t len);

#define TEST_MAIN(tests)                                                         \
    int main(void)                                                               \
    {                                                                            \
        harness_begin();                                                         \
        return harness_end(__FILE__, cmocka_run_group_tests(tests, NULL, NULL)); \
    }

#endif
