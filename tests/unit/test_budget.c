/* What all rings may take together: what was promised counts, what was returned does not. */
#include "daemon/serve/ring/budget.h"
#include "tests/lib/harness.h"

#include <errno.h>

enum { KIB = 1024 };

static void expect_refused(struct budget *budget, uint64_t bytes, int code, const char *text)
{
    struct dl_error err = {0};
    uint64_t held = budget->in_use, promised = budget->promised;

    assert_int_equal(budget_take(budget, bytes, "eat less", &err), -code);
    assert_non_null(strstr(err.message, text));
    assert_int_equal(budget->in_use, held);
    assert_int_equal(budget->promised, promised);
}

TEST(test_ceilings)
{
    assert_int_equal(budget_ceiling(&(struct config_share){.bytes = 7}, 1000), 7);
    assert_int_equal(budget_ceiling(&(struct config_share){.per_cent = 50}, 1000), 500);
    assert_int_equal(budget_ceiling(&(struct config_share){.per_cent = 100}, UINT64_MAX),
                     UINT64_MAX / 100 * 100);
}

TEST(test_the_ceiling_of_all_users)
{
    struct config_share share = {.bytes = 100 * KIB};
    struct budget budget;
    struct dl_error err = {0};

    budget_init(&budget, &share);
    assert_int_equal(budget_take(&budget, 60 * KIB, "eat less", &err), 0);
    expect_refused(
        &budget, 41 * KIB, EDQUOT,
        "41984 more would exceed the limit of 102400 for the loaders of all users, which "
        "use 61440");
    assert_int_equal(budget_take(&budget, 40 * KIB, "eat less", &err), 0);
    expect_refused(&budget, 1, EDQUOT, "1 more");
    budget_settle(&budget, 60 * KIB);
    expect_refused(&budget, UINT64_MAX, EDQUOT, "more");
    budget_return(&budget, 60 * KIB);
    share.bytes = 50 * KIB; /* reloaded */
    expect_refused(&budget, 11 * KIB, EDQUOT, "11264 more");
    assert_int_equal(budget_take(&budget, 10 * KIB, "eat less", &err), 0);
    budget_settle(&budget, 50 * KIB);
    budget_return(&budget, 50 * KIB);
    assert_int_equal(budget.in_use + budget.promised, 0);
}

/* Of a machine whose memory nobody takes meanwhile: what is promised is gone. */
TEST(test_what_the_system_has)
{
    const struct config_share share = {.bytes = UINT64_MAX};
    struct budget budget;
    struct dl_error err = {0};

    budget_init(&budget, &share);
    expect_refused(&budget, (uint64_t)1 << 60, ENOMEM,
                   "1152921504606846976 bytes are wanted, and ");
    assert_true(budget.available.bytes > KIB);
    uint64_t most = budget.available.bytes / 2;
    assert_int_equal(budget_take(&budget, most, "eat less", &err), 0);
    budget.read_ns = 0; /* whenever it looks: nothing of it is there yet */
    expect_refused(&budget, most + most / 2, ENOMEM, "promised");
    budget_settle(&budget, most);
    budget_return(&budget, most);
    assert_int_equal(budget_take(&budget, most, "eat less", &err), 0);
    budget_settle(&budget, most);
    budget_return(&budget, most);
}
