#include "daemon/serve/base/quota.h"

#include "daemon/serve/base/memory.h"

#include <assert.h>
#include <errno.h>

#include <uthash.h>

struct quota_account {
    UT_hash_handle hh;   /* quota.accounts */
    struct quota *quota; /* borrowed, outlives the account */
    uid_t uid;
    uint64_t held[QUOTA_KINDS];
};

struct quota {
    uint64_t limits[QUOTA_KINDS];
    struct quota_account *accounts; /* by uid */
};

static const char *const kind_names[QUOTA_KINDS] = {
    [QUOTA_SESSIONS] = "limits.sessions", [QUOTA_LOADERS] = "limits.loaders",
    [QUOTA_WORKERS] = "limits.workers",   [QUOTA_BYTES] = "limits.bytes",
    [QUOTA_EPOCHS] = "limits.epochs",     [QUOTA_LEASES] = "limits.leases",
};

struct quota *quota_new(const struct config_limits *limits)
{
    struct quota *quota = must_alloc(sizeof *quota);

    quota_set_limits(quota, limits);
    return quota;
}

void quota_set_limits(struct quota *quota, const struct config_limits *limits)
{
    quota->limits[QUOTA_SESSIONS] = limits->sessions;
    quota->limits[QUOTA_LOADERS] = limits->loaders;
    quota->limits[QUOTA_WORKERS] = limits->workers;
    quota->limits[QUOTA_BYTES] = limits->bytes;
    quota->limits[QUOTA_EPOCHS] = limits->epochs;
    quota->limits[QUOTA_LEASES] = limits->leases;
}

struct quota *quota_free(struct quota *quota)
{
    struct quota_account *account;
    struct quota_account *next;

    if (!quota)
        return NULL;
    HASH_ITER (hh, quota->accounts, account, next) {
        for (int kind = 0; kind < QUOTA_KINDS; kind++)
            assert(account->held[kind] == 0);
        HASH_DEL(quota->accounts, account);
        free(account);
    }
    free(quota);
    return NULL;
}

struct quota_account *quota_account(struct quota *quota, uid_t uid)
{
    struct quota_account *account;

    HASH_FIND(hh, quota->accounts, &uid, sizeof uid, account);
    if (!account) {
        account = must_alloc(sizeof *account);
        account->quota = quota;
        account->uid = uid;
        HASH_ADD(hh, quota->accounts, uid, sizeof account->uid, account);
    }
    return account;
}

int quota_charge(struct quota_account *account, enum quota_kind kind, uint64_t n,
                 struct dl_error *err)
{
    uint64_t limit = account->quota->limits[kind];

    if (n > limit || account->held[kind] > limit - n)
        return dl_error_set(err, EDQUOT, kind_names[kind],
                            "%llu more would exceed the limit of %llu for uid %u, which uses "
                            "%llu; release some, or raise it in dloaderd.conf",
                            (unsigned long long)n, (unsigned long long)limit,
                            (unsigned)account->uid, (unsigned long long)account->held[kind]);
    account->held[kind] += n;
    return 0;
}

void quota_return(struct quota_account *account, enum quota_kind kind, uint64_t n)
{
    assert(account->held[kind] >= n);
    account->held[kind] -= n;
}

uint64_t quota_held(const struct quota_account *account, enum quota_kind kind)
{
    return account->held[kind];
}
