/* Accounts by user: limits to the unit, texts, users apart from each other, everything returned. */
#include "tests/lib/abort.h"

#include "daemon/base/quota.h"

#include <errno.h>
#include <stdio.h>

static const struct config_limits limits = {.sessions = 3,
                                            .loaders = 5,
                                            .workers = 7,
                                            .bytes = 1000,
                                            .epochs = 9,
                                            .leases = 11,
                                            .overhead = 13,
                                            .descriptors = 17,
                                            .worlds = 19};

static const struct {
    enum quota_kind kind;
    const char *name;
    uint64_t limit;
} kinds[QUOTA_KINDS] = {
    {QUOTA_SESSIONS, "limits.sessions", 3},  {QUOTA_LOADERS, "limits.loaders", 5},
    {QUOTA_WORKERS, "limits.workers", 7},    {QUOTA_BYTES, "limits.bytes", 1000},
    {QUOTA_EPOCHS, "limits.epochs", 9},      {QUOTA_LEASES, "limits.leases", 11},
    {QUOTA_OVERHEAD, "limits.overhead", 13}, {QUOTA_DESCRIPTORS, "limits.descriptors", 17},
    {QUOTA_WORLDS, "limits.worlds", 19}};

TEST(test_each_kind_to_its_limit)
{
    struct quota *quota = quota_new(&limits);
    struct quota_account *account = quota_account(quota, 1000);

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        enum quota_kind kind = kinds[i].kind;
        struct dl_error err = {0};
        char text[256];

        assert_int_equal(quota_charge(account, kind, kinds[i].limit - 1, &err), 0);
        assert_int_equal(quota_charge(account, kind, 1, &err), 0);
        assert_int_equal(err.code, 0);
        assert_int_equal(quota_charge(account, kind, 1, &err), -EDQUOT);
        assert_int_equal(err.code, EDQUOT);
        assert_string_equal(err.path, kinds[i].name);
        snprintf(text, sizeof text,
                 "1 more would exceed the limit of %llu for uid 1000, which uses %llu; release "
                 "some, or raise it in dloaderd.conf",
                 (unsigned long long)kinds[i].limit, (unsigned long long)kinds[i].limit);
        assert_string_equal(err.message, text);
        assert_int_equal(quota_in_use(account, kind), kinds[i].limit);
        assert_int_equal(quota_charge(account, kind, 1, NULL), -EDQUOT);
        quota_return(account, kind, 1);
        assert_int_equal(quota_charge(account, kind, 1, &err), 0);
        quota_return(account, kind, kinds[i].limit);
        assert_int_equal(quota_in_use(account, kind), 0);
    }
    assert_null(quota_free(quota));
}

TEST(test_absurd_charges)
{
    static const uint64_t charges[] = {1001,           UINT64_MAX,          UINT64_MAX - 1,
                                       INT64_MAX,      (uint64_t)1 << 63,   UINT64_MAX - 999,
                                       UINT64_MAX / 2, (uint64_t)UINT32_MAX};
    struct quota *quota = quota_new(&limits);
    struct quota_account *account = quota_account(quota, 0);

    for (uint64_t held = 0; held <= 1000; held += 500) {
        assert_int_equal(quota_charge(account, QUOTA_BYTES, held, NULL), 0);
        for (size_t i = 0; i < ARRAY_SIZE(charges); i++) {
            assert_int_equal(quota_charge(account, QUOTA_BYTES, charges[i], NULL), -EDQUOT);
            assert_int_equal(quota_in_use(account, QUOTA_BYTES), held);
        }
        quota_return(account, QUOTA_BYTES, held);
    }
    quota_free(quota);
}

TEST(test_users_do_not_share)
{
    enum { USERS = 500 };
    struct quota *quota = quota_new(&limits);
    struct quota_account *accounts[USERS];

    for (uid_t uid = 0; uid < USERS; uid++) {
        accounts[uid] = quota_account(quota, uid * 7919);
        for (int i = 0; i < 3; i++)
            assert_int_equal(quota_charge(accounts[uid], QUOTA_SESSIONS, 1, NULL), 0);
        assert_int_equal(quota_charge(accounts[uid], QUOTA_SESSIONS, 1, NULL), -EDQUOT);
        assert_int_equal(quota_in_use(accounts[uid], QUOTA_LOADERS), 0);
    }
    for (uid_t uid = 0; uid < USERS; uid++) {
        assert_ptr_equal(quota_account(quota, uid * 7919), accounts[uid]);
        quota_return(accounts[uid], QUOTA_SESSIONS, 3);
    }
    quota_free(quota);
}

TEST(test_new_limits)
{
    struct config_limits lower = limits;
    struct quota *quota = quota_new(&limits);
    struct quota_account *account = quota_account(quota, UINT32_MAX);
    struct dl_error err = {0};

    assert_int_equal(quota_charge(account, QUOTA_WORKERS, 6, NULL), 0);
    lower.workers = 2;
    quota_set_limits(quota, &lower);
    assert_int_equal(quota_in_use(account, QUOTA_WORKERS), 6); /* what is held stays */
    assert_int_equal(quota_charge(account, QUOTA_WORKERS, 1, &err), -EDQUOT);
    assert_non_null(strstr(err.message, "limit of 2 for uid 4294967295, which uses 6;"));
    quota_return(account, QUOTA_WORKERS, 4);
    assert_int_equal(quota_charge(account, QUOTA_WORKERS, 1, &err), -EDQUOT);
    quota_return(account, QUOTA_WORKERS, 1);
    assert_int_equal(quota_charge(account, QUOTA_WORKERS, 1, &err), 0);
    lower.workers = UINT64_MAX;
    quota_set_limits(quota, &lower);
    assert_int_equal(quota_charge(account, QUOTA_WORKERS, UINT64_MAX - 2, &err), 0);
    assert_int_equal(quota_charge(account, QUOTA_WORKERS, 1, &err), -EDQUOT);
    quota_return(account, QUOTA_WORKERS, UINT64_MAX);
    quota_free(quota);
}

/* Groups of one user are apart from each other and from the user; as those of another are. */
TEST(test_control_groups)
{
    struct quota *quota = quota_new(&limits);
    struct quota_account *user = quota_account(quota, 7), *one = quota_account_in(quota, 7, "/a"),
                         *other = quota_account_in(quota, 7, "/b");
    struct dl_error err = {0};

    assert_ptr_equal(quota_account_in(quota, 7, ""), user);
    assert_ptr_equal(quota_account_in(quota, 7, "/a"), one);
    assert_ptr_not_equal(quota_account_in(quota, 8, "/a"), one);
    assert_string_equal(quota_group(user), "");
    assert_string_equal(quota_group(other), "/b");
    assert_int_equal(quota_uid(other), 7);
    assert_true(quota_tell_once(one) && !quota_tell_once(one) && quota_tell_once(other));
    assert_int_equal(quota_charge(one, QUOTA_LOADERS, 5, NULL), 0);
    assert_int_equal(quota_charge(other, QUOTA_LOADERS, 5, NULL), 0);
    assert_int_equal(quota_charge(user, QUOTA_LOADERS, 5, NULL), 0);
    assert_int_equal(quota_charge(one, QUOTA_LOADERS, 1, &err), -EDQUOT);
    assert_string_equal(err.message, "1 more would exceed the limit of 5 for uid 7 in control "
                                     "group /a, which uses 5; release some, or raise it in "
                                     "dloaderd.conf");
    quota_return(one, QUOTA_LOADERS, 5);
    quota_return(other, QUOTA_LOADERS, 5);
    quota_return(user, QUOTA_LOADERS, 5);
    quota_free(quota);
}

static size_t count_accounts(const struct quota *quota)
{
    size_t n = 0;

    for (const struct quota_account *a = NULL; (a = quota_next(quota, a));)
        n++;
    return n;
}

/* Groups come and go, and their accounts do; not those of users, nor of who holds something. */
TEST(test_groups_are_forgotten)
{
    struct quota *quota = quota_new(&limits);
    struct quota_account *user = quota_account(quota, 7),
                         *first = quota_account_in(quota, 7, "/first");
    char name[32];

    assert_int_equal(quota_charge(first, QUOTA_SESSIONS, 1, NULL), 0);
    for (unsigned i = 0; i < 3 * QUOTA_GROUPS_MAX; i++) {
        (void)snprintf(name, sizeof name, "/group%u", i);
        (void)quota_account_in(quota, 7, name);
    }
    assert_int_equal(count_accounts(quota), 1 + QUOTA_GROUPS_MAX);
    assert_ptr_equal(quota_account(quota, 7), user);
    assert_ptr_equal(quota_account_in(quota, 7, "/first"), first);
    assert_int_equal(quota_in_use(first, QUOTA_SESSIONS), 1);
    /* All hold something: none can go. */
    struct quota_account *all[QUOTA_GROUPS_MAX + 3];
    for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
        (void)snprintf(name, sizeof name, "/busy%u", i);
        all[i] = quota_account_in(quota, 8, name);
        assert_int_equal(quota_charge(all[i], QUOTA_SESSIONS, 1, NULL), 0);
    }
    assert_int_equal(count_accounts(quota), 1 + 1 + ARRAY_SIZE(all));
    for (unsigned i = 0; i < ARRAY_SIZE(all); i++)
        quota_return(all[i], QUOTA_SESSIONS, 1);
    quota_return(first, QUOTA_SESSIONS, 1);
    quota_free(quota);
}

static void return_too_much(void *arg)
{
    quota_return(arg, QUOTA_BYTES, 2);
}

static void free_while_held(void *arg)
{
    quota_free(arg);
}

TEST(test_books_that_do_not_balance_abort)
{
    struct quota *quota = quota_new(&limits);
    struct quota_account *account = quota_account(quota, 1);

    assert_int_equal(quota_charge(account, QUOTA_BYTES, 1, NULL), 0);
    assert_true(call_aborts(return_too_much, account));
    assert_true(call_aborts(free_while_held, quota));
    quota_return(account, QUOTA_BYTES, 1);
    assert_false(call_aborts(free_while_held, quota));
    quota_free(quota);
    assert_null(quota_free(NULL));
}
