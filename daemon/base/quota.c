#include "daemon/base/quota.h"

#include "daemon/base/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include <uthash.h>

struct quota_account {
    UT_hash_handle hh;   /* quota.accounts */
    struct quota *quota; /* borrowed, outlives the account */
    uid_t uid;
    char *key;   /* owned: the uid, and the group behind a colon */
    size_t used; /* last used: value of quota.asked */
    uint64_t in_use[QUOTA_KINDS];
    const struct config_user *own; /* borrowed; NULL: it has what all have */
    uint64_t refused;              /* charges */
    bool notice_given;             /* by quota_tell_once() */
    uint64_t loop_ns;
};

struct quota {
    uint64_t limits[QUOTA_KINDS];
    struct config_users users; /* borrowed: those that have their own */
    struct {
        uint64_t in_use;
        uint64_t all, one; /* at most: of all users, of one, */
    } totals[QUOTA_KINDS];
    struct quota_account *accounts; /* by key */
    size_t asked;                   /* for accounts, so often */
    size_t groups;                  /* accounts of them */
};

#define LIMITS "limits."

static const struct {
    const char *key; /* of its limit in the configuration */
    size_t offset;   /* that */
} quota_kinds[QUOTA_KINDS] = {
#define KIND(kind, field) [kind] = {LIMITS #field, offsetof(struct config_limits, field)}
    KIND(QUOTA_SESSIONS, sessions), KIND(QUOTA_LOADERS, loaders),
    KIND(QUOTA_WORKERS, workers),   KIND(QUOTA_BYTES, bytes),
    KIND(QUOTA_EPOCHS, epochs),     KIND(QUOTA_LEASES, leases),
    KIND(QUOTA_OVERHEAD, overhead), KIND(QUOTA_DESCRIPTORS, descriptors),
    KIND(QUOTA_WORLDS, worlds),
#undef KIND
};

static uint64_t quota_limit_of(const struct config_limits *limits, enum quota_kind kind)
{
    uint64_t limit;

    memcpy(&limit, (const char *)limits + quota_kinds[kind].offset, sizeof limit);
    return limit;
}

struct quota *quota_new(const struct config_limits *limits)
{
    struct quota *quota = must_alloc(sizeof *quota);

    quota_set_limits(quota, limits);
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        quota_set_total(quota, (enum quota_kind)kind, UINT64_MAX, UINT64_MAX);
    return quota;
}

void quota_set_total(struct quota *quota, enum quota_kind kind, uint64_t all, uint64_t one)
{
    quota->totals[kind].all = all;
    quota->totals[kind].one = one;
}

void quota_set_limits(struct quota *quota, const struct config_limits *limits)
{
    struct quota_account *account, *next;

    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        quota->limits[kind] = quota_limit_of(limits, (enum quota_kind)kind);
    quota->users = limits->users;
    HASH_ITER (hh, quota->accounts, account, next)
        account->own = config_find_user(&quota->users, account->uid, quota_group(account));
}

static bool quota_is_idle(const struct quota_account *account)
{
    for (int kind = 0; kind < QUOTA_KINDS; kind++)
        if (account->in_use[kind] > 0)
            return false;
    return true;
}

static void quota_drop(struct quota_account *account)
{
    account->quota->groups -= *quota_group(account) != 0;
    HASH_DEL(account->quota->accounts, account);
    free(account->key);
    free(account);
}

struct quota *quota_free(struct quota *quota)
{
    struct quota_account *account;
    struct quota_account *next;

    if (!quota)
        return NULL;
    HASH_ITER (hh, quota->accounts, account, next) {
        assert(quota_is_idle(account));
        quota_drop(account);
    }
    free(quota);
    return NULL;
}

/* Room for another group. */
static void quota_forget_group(struct quota *quota)
{
    struct quota_account *account, *next, *oldest = NULL;

    HASH_ITER (hh, quota->accounts, account, next)
        if (*quota_group(account) && quota_is_idle(account) &&
            (!oldest || account->used < oldest->used))
            oldest = account;
    if (oldest)
        quota_drop(oldest);
}

struct quota_account *quota_account_in(struct quota *quota, uid_t uid, const char *group)
{
    struct quota_account *account;
    size_t room = strlen(group) + sizeof "4294967295:";
    char *key = must_alloc(room);

    (void)snprintf(key, room, "%u:%s", (unsigned)uid, group);
    HASH_FIND_STR(quota->accounts, key, account);
    if (account) {
        free(key);
    } else {
        if (*group && quota->groups >= QUOTA_GROUPS_MAX)
            quota_forget_group(quota);
        account = must_alloc(sizeof *account);
        account->quota = quota;
        account->uid = uid;
        account->key = key;
        account->own = config_find_user(&quota->users, uid, group);
        HASH_ADD_KEYPTR(hh, quota->accounts, account->key, strlen(account->key), account);
        quota->groups += *group != 0;
    }
    account->used = ++quota->asked;
    return account;
}

struct quota_account *quota_account(struct quota *quota, uid_t uid)
{
    return quota_account_in(quota, uid, "");
}

uint64_t quota_limit(const struct quota_account *account, enum quota_kind kind)
{
    uint64_t own = account->own ? quota_limit_of(&account->own->own, kind) : 0;

    return min_u64(own ? own : account->quota->limits[kind], account->quota->totals[kind].one);
}

uint64_t quota_weight(const struct quota_account *account)
{
    return account->own && account->own->weight ? account->own->weight : CONFIG_WEIGHT;
}

int quota_check(const struct quota_account *account, enum quota_kind kind, uint64_t n,
                struct dl_error *err)
{
    uint64_t all = account->quota->totals[kind].all, in_use = account->quota->totals[kind].in_use;
    uint64_t limit = quota_limit(account, kind);

    if (n > limit || account->in_use[kind] > limit - n)
        return dl_error_set(err, EDQUOT, quota_kinds[kind].key,
                            "%llu more would exceed the limit of %llu for uid %u%s%s, which uses "
                            "%llu; release some, or raise it in dloaderd.conf",
                            (ull)n, (ull)limit, (unsigned)account->uid,
                            *quota_group(account) ? " in control group " : "", quota_group(account),
                            (ull)account->in_use[kind]);
    if (n > all || in_use > all - n)
        return dl_error_set(err, EDQUOT, quota_kinds[kind].key,
                            "%llu more would exceed the limit of %llu for all users together, who "
                            "use %llu; try again later",
                            (ull)n, (ull)all, (ull)in_use);
    return 0;
}

bool quota_tell_once(struct quota_account *account)
{
    bool first = !account->notice_given;

    account->notice_given = true;
    return first;
}

void quota_count_refusal(struct quota_account *account)
{
    account->refused++;
}

int quota_charge(struct quota_account *account, enum quota_kind kind, uint64_t n,
                 struct dl_error *err)
{
    int r = quota_check(account, kind, n, err);

    if (r < 0) {
        quota_count_refusal(account);
        return r;
    }
    quota_add(account, kind, n);
    return 0;
}

void quota_add(struct quota_account *account, enum quota_kind kind, uint64_t n)
{
    account->in_use[kind] += n;
    account->quota->totals[kind].in_use += n;
}

void quota_return(struct quota_account *account, enum quota_kind kind, uint64_t n)
{
    assert(account->in_use[kind] >= n && account->quota->totals[kind].in_use >= n);
    account->in_use[kind] -= n;
    account->quota->totals[kind].in_use -= n;
}

uint64_t quota_in_use(const struct quota_account *account, enum quota_kind kind)
{
    return account->in_use[kind];
}

void quota_add_loop_time(struct quota_account *account, uint64_t ns)
{
    account->loop_ns += ns;
}

/* ---- for the view `users` -------------------------------------------------------------------- */

const struct quota_account *quota_next(const struct quota *quota,
                                       const struct quota_account *account)
{
    return account ? account->hh.next : quota->accounts;
}

uid_t quota_uid(const struct quota_account *account)
{
    return account->uid;
}

const char *quota_group(const struct quota_account *account)
{
    return strchr(account->key, ':') + 1;
}

uint64_t quota_refused(const struct quota_account *account)
{
    return account->refused;
}

uint64_t quota_loop_ns(const struct quota_account *account)
{
    return account->loop_ns;
}

const char *quota_kind_name(enum quota_kind kind)
{
    return quota_kinds[kind].key + strlen(LIMITS);
}
