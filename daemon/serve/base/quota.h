/*
 * Accounts by user: how much of each limited thing one uid has, whichever of its connections asked
 * for it; or one control group of it. Pure. Every charge is returned; quota_free() asserts that all
 * are.
 */
#ifndef DL_QUOTA_H
#define DL_QUOTA_H

#include "daemon/serve/base/config.h"

#include <sys/types.h>

enum quota_kind {
    QUOTA_SESSIONS,
    QUOTA_LOADERS,
    QUOTA_WORKERS,
    QUOTA_BYTES,
    QUOTA_EPOCHS,
    QUOTA_LEASES,
    QUOTA_OVERHEAD,    /* bytes of the daemon's own memory: what clients were told and do not read,
                      have said in part, or have said and cannot be done yet */
    QUOTA_DESCRIPTORS, /* of the daemon's */
    QUOTA_WORLDS       /* loaders that are read in the cluster's world */
};
enum { QUOTA_KINDS = 9 };

struct quota;         /* all accounts */
struct quota_account; /* of one uid, or a group of it; counted by its charges */

struct quota *quota_new(const struct config_limits *limits);
struct quota *quota_free(struct quota *quota);

/* New limits for later charges; what is in use already stays so. */
void quota_set_limits(struct quota *quota, const struct config_limits *limits);

/* All users together have `all` at most, and each of them `one`, whatever the limit is. */
void quota_set_total(struct quota *quota, enum quota_kind kind, uint64_t all, uint64_t one);

/* The account of `uid`, valid until quota_free(). */
struct quota_account *quota_account(struct quota *quota, uid_t uid);

/*
 * That of a control group's processes of `uid`; of "": the user's. Groups come and go: of those
 * that hold nothing, QUOTA_GROUPS_MAX accounts are kept, and the one not used for longest goes. So
 * it is valid while it holds anything.
 */
enum { QUOTA_GROUPS_MAX = 1024 };
struct quota_account *quota_account_in(struct quota *quota, uid_t uid, const char *group);

/* 0, or -EDQUOT with `err` saying what was asked, what is in use and what the limit is. */
int _nodiscard_ quota_charge(struct quota_account *account, enum quota_kind kind, uint64_t n,
                             struct dl_error *err);
/* Of what is there already, and cannot be refused; the limit may be exceeded. */
void quota_add(struct quota_account *account, enum quota_kind kind, uint64_t n);
void quota_return(struct quota_account *account, enum quota_kind kind, uint64_t n);
/* Whether so many would be charged; nothing is, nor is a refusal counted. */
int _nodiscard_ quota_check(const struct quota_account *account, enum quota_kind kind, uint64_t n,
                            struct dl_error *err);

/* True the first time: what is to be said once of an account. */
bool quota_tell_once(struct quota_account *account);

void quota_count_refusal(struct quota_account *account);

uint64_t quota_in_use(const struct quota_account *account, enum quota_kind kind);

/* The loop was busy with the user's sessions for so long. */
void quota_add_loop_time(struct quota_account *account, uint64_t ns);

/* ---- for the view `users` -------------------------------------------------------------------- */

/* Each account, from NULL on, in the order of their making; NULL: there are no more. */
const struct quota_account *quota_next(const struct quota *quota,
                                       const struct quota_account *account);
uid_t quota_uid(const struct quota_account *account);
const char *quota_group(const struct quota_account *account); /* "": it is the user's */
uint64_t quota_limit(const struct quota_account *account, enum quota_kind kind);
uint64_t quota_refused(const struct quota_account *account); /* charges, of all kinds */
uint64_t quota_loop_ns(const struct quota_account *account);
const char *quota_kind_name(enum quota_kind kind); /* "sessions" */

#endif
