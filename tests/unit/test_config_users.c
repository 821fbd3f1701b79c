/* limits.users: whose they are, what they say, and each wrong one with the whole message. */
#include "tests/unit/config_case.h"

#include "daemon/base/quota.h"

#include <errno.h>
#include <stdio.h>

static const char text[] = "limits:\n"
                           "  charge: cgroup\n"
                           "  workers: 64\n"
                           "  users:\n"
                           "    root: {weight: 10000, bytes: 2MiB}\n"
                           "    60001: {workers: 3}\n"
                           "    /slurm: {weight: 7}\n"
                           "    /slurm/job_1/: {weight: 8, loaders: 5}\n"
                           "    train.service: {weight: 9}\n"
                           "    user.slice: {}\n";

/* The name first: NULL, it has what all have. */
static const struct {
    const char *name;
    uint32_t uid;
    const char *group;
} rows[] = {
    {"root", 0, ""},
    {"60001", 60001, ""},
    {NULL, 60002, ""},
    {NULL, 60002, "/"},
    {"60001", 60001, "/other/slurm"},
    {"/slurm", 60001, "/slurm"},
    {"/slurm", 60002, "/slurm/job_2"},
    {NULL, 60002, "/slurmd/job_1"},
    {"/slurm/job_1/", 60002, "/slurm/job_1"},
    {"/slurm/job_1/", 0, "/slurm/job_1/step_0"},
    {"/slurm", 0, "/slurm/job_10"},
    {"train.service", 0, "/system.slice/train.service"},
    {"train.service", 60002, "/user.slice/user-1.slice/train.service/inner"},
    {"user.slice", 60002, "/user.slice/user-1.slice/other.service"},
    {NULL, 60002, "/system.slice/my-train.service"},
    {NULL, 60002, "/system.slice/train.service2"},
};

TEST(test_whose_they_are)
{
    struct config config = load(text);

    assert_int_equal(config.limits.users.n, 6);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct config_user *user =
            config_find_user(&config.limits.users, rows[i].uid, rows[i].group);

        if (!rows[i].name != !user || (user && strcmp(user->name, rows[i].name) != 0))
            fail_msg("uid %u in \"%s\" has what %s has", rows[i].uid, rows[i].group,
                     user ? user->name : "all have");
    }
    config_deinit(&config);
}

/* Accounts have the weight and the limits that are given, and else those of all; from a reload on,
 * the new ones. */
TEST(test_of_accounts)
{
    struct config config = load(text), none = load("limits: {workers: 8}");
    struct quota *quota = quota_new(&config.limits);
    struct quota_account *root = quota_account(quota, 0), *other = quota_account(quota, 60001);
    struct quota_account *job = quota_account_in(quota, 60001, "/slurm/job_1");
    struct dl_error err = {0};

    assert_int_equal(quota_weight(root), 10000);
    assert_int_equal(quota_limit(root, QUOTA_BYTES), 2 << 20);
    assert_int_equal(quota_limit(root, QUOTA_WORKERS), 64);
    assert_int_equal(quota_weight(other), CONFIG_WEIGHT);
    assert_int_equal(quota_weight(job), 8);
    assert_int_equal(quota_limit(job, QUOTA_LOADERS), 5);
    assert_int_equal(quota_charge(other, QUOTA_WORKERS, 4, &err), -EDQUOT);
    assert_non_null(strstr(err.message, "4 more would exceed the limit of 3 for uid 60001"));
    quota_set_limits(quota, &none.limits);
    assert_int_equal(quota_weight(root), CONFIG_WEIGHT);
    assert_int_equal(quota_limit(other, QUOTA_WORKERS), 8);
    assert_int_equal(quota_limit(root, QUOTA_BYTES), none.limits.bytes);
    quota_free(quota);
    config_deinit(&config);
    config_deinit(&none);
}

#define GROUPS "limits: {charge: cgroup, users: "
#define USERS  "limits: {users: "
#define WEIGHT " is not a weight from 1 to 10000"
#define OWN                                                                                      \
    "a user may have no such setting of its own; those are weight, bytes, descriptors, epochs, " \
    "leases, loaders, overhead, sessions, workers and worlds"

static const struct {
    const char *text, *path, *message;
} wrong[] = {
    {USERS "[root]}", "limits.users",
     "a list is not a mapping of users, such as {alice: {weight: 200}}"},
    {USERS "{root: 5}}", "limits.users.root", "an integer is not a mapping, such as {weight: 200}"},
    {USERS "{root: {weight: 0}}}", "limits.users.root.weight", "0" WEIGHT},
    {USERS "{root: {weight: 10001}}}", "limits.users.root.weight", "10001" WEIGHT},
    {USERS "{root: {weight: high}}}", "limits.users.root.weight", "\"high\"" WEIGHT},
    {USERS "{root: {workers: 0}}}", "limits.users.root.workers", "0 is not a positive integer"},
    {USERS "{root: {bytes: many}}}", "limits.users.root.bytes",
     "\"many\" is not a size such as 8GiB"},
    {USERS "{root: {memory: 1GiB}}}", "limits.users.root.memory", OWN},
    {USERS "{root: {threads: 1}}}", "limits.users.root.threads", OWN},
    {USERS "{root: {session: 1}}}", "limits.users.root.session", OWN},
    {USERS "{root: {and: 1}}}", "limits.users.root.and", OWN},
    {USERS "{nobody-of-that-name: {}}}", "limits.users.nobody-of-that-name",
     "no user of this machine has that name; write a user's name or number, the path of a control "
     "group, such as /slurm, or a unit's name"},
    {USERS "{4294967295: {}}}", "limits.users.4294967295",
     "no user of this machine has that name; write a user's name or number, the path of a control "
     "group, such as /slurm, or a unit's name"},
};

static const struct {
    const char *text, *path, *message;
} unlike[] = {
    {USERS "{/slurm: {weight: 5}}}", "limits.users./slurm",
     "it is a control group, which count with limits.charge: cgroup alone"},
    {USERS "{a.scope: {weight: 5}}}", "limits.users.a.scope",
     "it is a control group, which count with limits.charge: cgroup alone"},
    {GROUPS "{root: {weight: 5}, 0: {weight: 6}}}", "limits.users.0",
     "it is the same user as root; name it once"},
};

TEST(test_wrong_ones)
{
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        expect_refused(wrong[i].text, EINVAL, wrong[i].path, 1, wrong[i].message);
    for (size_t i = 0; i < ARRAY_SIZE(unlike); i++)
        expect_refused(unlike[i].text, EINVAL, unlike[i].path, 0, unlike[i].message);
}
