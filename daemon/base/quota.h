/*
 * Accounts by user: how much of each limited resource one uid, or one control group of it, uses
 * over all its connections. Pure. Every charge is returned; quota_free() asserts it.
 */
#ifndef DL_QUOTA_H
#define DL_QUOTA_H

#include "daemon/base/config.h"

#include <sys/types.h>

enum quota_kind {
    QUOTA_SESSIONS,
    QUOTA_LOADERS,
    QUOTA_WORKERS,
    QUOTA_BYTES,
    QUOTA_EPOCHS,
    QUOTA_LEASES,
    QUOTA_OVERHEAD, /* bytes of the daemon's own memory: messages that clients have not read, have
                       sent in part, or that cannot be handled yet */
    QUOTA_DESCRIPTORS, /* of the daemon's */
    QUOTA_WORLDS       /* loaders that are read in the cluster's world */
};
enum { QUOTA_KINDS = 9 };

struct quota;         /* all accounts */
struct quota_account; /* of one uid, or a group of it; counted by its charges */

struct quota *quota_new(const struct config_limits *limits);
struct quota *quota_free(struct quota *quota);

/* New limits for later charges; existing charges stay. `limits.users` is borrowed until the next.
 */
void quota_set_limits(struct quota *quota, const struct config_limits *limits);

/* All users together get at most `all`, and each at most `one`, whatever the limit is. */
void quota_set_total(struct quota *quota, enum quota_kind kind, uint64_t all, uint64_t one);

/* The account of `uid`, valid until quota_free(). */
struct quota_account *quota_account(struct quota *quota, uid_t uid);

/*
 * The account of a control group's processes of `uid`; "": the user's. Groups come and go: at most
 * QUOTA_GROUPS_MAX accounts without charges are kept, the least recently used goes first. So it is
 * valid while it has a charge.
 */
enum { QUOTA_GROUPS_MAX = 1024 };
struct quota_account *quota_account_in(struct quota *quota, uid_t uid, const char *group);

/* 0, or -EDQUOT with `err` naming the request, the amount in use and the limit. */
int _nodiscard_ quota_charge(struct quota_account *account, enum quota_kind kind, uint64_t n,
                             struct dl_error *err);
/* Charges what exists already and cannot be refused; the limit may be exceeded. */
void quota_add(struct quota_account *account, enum quota_kind kind, uint64_t n);
void quota_return(struct quota_account *account, enum quota_kind kind, uint64_t n);
/* Whether the charge would succeed; charges nothing and counts no refusal. */
int _nodiscard_ quota_check(const struct quota_account *account, enum quota_kind kind, uint64_t n,
                            struct dl_error *err);

/* True the first time: for messages that are sent once per account. */
bool quota_tell_once(struct quota_account *account);

void quota_count_refusal(struct quota_account *account);

/* Its part of what users share: limits.users. */
uint64_t quota_weight(const struct quota_account *account);

uint64_t quota_in_use(const struct quota_account *account, enum quota_kind kind);

/* Adds time that the loop spent on the user's sessions. */
void quota_add_loop_time(struct quota_account *account, uint64_t ns);

/* ---- for the view `users` -------------------------------------------------------------------- */

/* The account after `account` (NULL: the first), in the order of their creation; NULL at the
 * end. */
const struct quota_account *quota_next(const struct quota *quota,
                                       const struct quota_account *account);
uid_t quota_uid(const struct quota_account *account);
const char *quota_group(const struct quota_account *account); /* "": it is the user's */
uint64_t quota_limit(const struct quota_account *account, enum quota_kind kind);
uint64_t quota_refused(const struct quota_account *account); /* charges, of all kinds */
uint64_t quota_loop_ns(const struct quota_account *account);
const char *quota_kind_name(enum quota_kind kind); /* "sessions" */

#endif
