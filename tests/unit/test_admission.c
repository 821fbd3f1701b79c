/* Whether there is room: each claim to the unit, and several at once. */
#include "tests/lib/harness.h"

#include "daemon/base/admission.h"

/* The decision first, for one that is refused where it does not fit, and for one that may wait. */
static const struct {
    enum admission refuse, wait;
    struct admission_claim claims[3];
} rows[] = {
    {ADMISSION_FITS, ADMISSION_FITS, {{0}}},
    {ADMISSION_FITS, ADMISSION_FITS, {{.want = 3, .in_use = 7, .limit = 10}}},
    {ADMISSION_REFUSED, ADMISSION_WAITS, {{.want = 4, .in_use = 7, .limit = 10}}},
    {ADMISSION_MAKES_WAY,
     ADMISSION_MAKES_WAY,
     {{.want = 4, .in_use = 7, .limit = 10, .returned = 1}}},
    {ADMISSION_REFUSED, ADMISSION_WAITS, {{.want = 5, .in_use = 7, .limit = 10, .returned = 1}}},
    {ADMISSION_FITS, ADMISSION_FITS, {{.want = 10, .limit = 10}}},
    /* It never fits: nothing is to make way, and it is not to wait. */
    {ADMISSION_REFUSED, ADMISSION_REFUSED, {{.want = 11, .limit = 10}}},
    {ADMISSION_REFUSED, ADMISSION_REFUSED, {{.want = 11, .in_use = 3, .limit = 10, .returned = 3}}},
    {ADMISSION_REFUSED, ADMISSION_REFUSED, {{.want = UINT64_MAX, .in_use = 1, .limit = 10}}},
    /* More is in use than there may be by now. */
    {ADMISSION_FITS, ADMISSION_FITS, {{.want = 0, .in_use = 20, .limit = 10}}},
    {ADMISSION_REFUSED, ADMISSION_WAITS, {{.want = 1, .in_use = 20, .limit = 10}}},
    {ADMISSION_MAKES_WAY,
     ADMISSION_MAKES_WAY,
     {{.want = 1, .in_use = 20, .limit = 10, .returned = 30}}},
    /* The worst counts. */
    {ADMISSION_MAKES_WAY,
     ADMISSION_MAKES_WAY,
     {{.want = 1, .limit = 1}, {.want = 1, .in_use = 1, .limit = 1, .returned = 1}}},
    {ADMISSION_REFUSED,
     ADMISSION_WAITS,
     {{.want = 1, .in_use = 1, .limit = 1}, {.want = 1, .in_use = 1, .limit = 1, .returned = 1}}},
    {ADMISSION_REFUSED,
     ADMISSION_REFUSED,
     {{.want = 1, .in_use = 1, .limit = 1}, {.want = 1, .limit = 1}, {.want = 2, .limit = 1}}},
};

TEST(test_rows)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(admission_decide(rows[i].claims, 3, false), rows[i].refuse);
        assert_int_equal(admission_decide(rows[i].claims, 3, true), rows[i].wait);
    }
    assert_int_equal(admission_decide(NULL, 0, false), ADMISSION_FITS);
}
