/* Memory that a user has the daemon take: of the user's account, of all users' and of the system's.
 */
#include "daemon/serve/ring/charge.h"
#include "tests/lib/harness.h"

#include <errno.h>

enum { MIB = 1 << 20, ONE = 1000, ANOTHER = 1001 };

struct fixture {
    struct config_share share;
    struct budget budget;
    struct quota *quota;
    struct payer payer, other;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->share = (struct config_share){.bytes = 16 * MIB};
    budget_init(&f->budget, &f->share);
    f->quota = quota_new(&(struct config_limits){.bytes = 12 * MIB});
    f->payer = (struct payer){quota_account(f->quota, ONE), &f->budget};
    f->other = (struct payer){quota_account(f->quota, ANOTHER), &f->budget};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(f->budget.in_use + f->budget.promised, 0);
    quota_free(f->quota); /* asserts that all is returned */
    free(f);
    return 0;
}

static void expect(const struct fixture *f, uint64_t account, uint64_t held, uint64_t promised)
{
    assert_int_equal(quota_in_use(f->payer.account, QUOTA_BYTES), account);
    assert_int_equal(f->budget.in_use, held);
    assert_int_equal(f->budget.promised, promised);
}

TEST(test_its_way, setup, teardown)
{
    struct fixture *f = *state;
    struct charge charge = {0};

    assert_int_equal(charge_take(&charge, &f->payer, 8 * MIB, "eat less", NULL), 0);
    expect(f, 8 * MIB, 8 * MIB, 8 * MIB);
    charge_settle(&charge);
    charge_settle(&charge);
    expect(f, 8 * MIB, 8 * MIB, 0);
    charge_shrink(&charge, 9 * MIB); /* no less */
    expect(f, 8 * MIB, 8 * MIB, 0);
    charge_shrink(&charge, 3 * MIB);
    expect(f, 3 * MIB, 3 * MIB, 0);
    charge_shrink(&charge, MIB - 1);
    expect(f, MIB - 1, 0, 0);
    charge_return(&charge);
    expect(f, 0, 0, 0);
    charge_return(&charge);
    expect(f, 0, 0, 0);
}

/* Of memory that is filled little by little. */
TEST(test_there_in_part, setup, teardown)
{
    struct fixture *f = *state;
    struct charge charge = {0};

    assert_int_equal(charge_take(&charge, &f->payer, 8 * MIB, "eat less", NULL), 0);
    charge_settle_up_to(&charge, 3 * MIB);
    expect(f, 8 * MIB, 8 * MIB, 5 * MIB);
    charge_settle_up_to(&charge, 2 * MIB); /* no less than before */
    expect(f, 8 * MIB, 8 * MIB, 5 * MIB);
    charge_settle_up_to(&charge, 9 * MIB);
    expect(f, 8 * MIB, 8 * MIB, 0);
    charge_return(&charge);
    expect(f, 0, 0, 0);
    assert_int_equal(charge_take(&charge, &f->payer, 8 * MIB, "eat less", NULL), 0);
    charge_settle_up_to(&charge, 3 * MIB);
    charge_return(&charge);
    expect(f, 0, 0, 0);
}

TEST(test_returned_before_it_is_there, setup, teardown)
{
    struct fixture *f = *state;
    struct charge charge = {0};

    assert_int_equal(charge_take(&charge, &f->payer, 8 * MIB, "eat less", NULL), 0);
    charge_return(&charge);
    expect(f, 0, 0, 0);
}

TEST(test_little_is_the_users_alone, setup, teardown)
{
    struct fixture *f = *state;
    struct charge charge = {0};

    f->share.bytes = 0;
    assert_int_equal(charge_take(&charge, &f->payer, MIB - 1, "eat less", NULL), 0);
    expect(f, MIB - 1, 0, 0);
    charge_return(&charge);
}

TEST(test_refused, setup, teardown)
{
    struct fixture *f = *state;
    struct charge first = {0}, second = {0};
    struct dl_error err = {0};

    assert_int_equal(charge_take(&first, &f->payer, 10 * MIB, "eat less", &err), 0);
    assert_int_equal(charge_take(&second, &f->payer, 3 * MIB, "eat less", &err), -EDQUOT);
    assert_string_equal(err.path, "limits.bytes");
    assert_int_equal(charge_take(&second, &f->other, 7 * MIB, "eat less", &err), -EDQUOT);
    assert_string_equal(err.path, "limits.memory");
    assert_non_null(strstr(err.message, "; close loaders, eat less, or raise limits.memory"));
    assert_int_equal(quota_in_use(f->other.account, QUOTA_BYTES), 0);
    assert_int_equal(second.bytes, 0);
    expect(f, 10 * MIB, 10 * MIB, 10 * MIB);
    charge_return(&first);
}

TEST(test_nobody_pays)
{
    const struct payer nobody = {0};
    struct charge charge = {0};

    assert_int_equal(charge_take(&charge, &nobody, UINT64_MAX, "eat less", NULL), 0);
    charge_shrink(&charge, 5);
    charge_return(&charge);
}
