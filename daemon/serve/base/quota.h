/*
 * Accounts by user: how much of each limited thing one uid has, whichever of its connections asked
 * for it. Pure. Every charge is returned; quota_free() asserts that all are.
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
    QUOTA_LEASES
};
enum { QUOTA_KINDS = 6 };

struct quota;         /* all accounts */
struct quota_account; /* of one uid; counted by its charges */

struct quota *quota_new(const struct config_limits *limits);
struct quota *quota_free(struct quota *quota);

/* New limits for later charges; what is held already stays held. */
void quota_set_limits(struct quota *quota, const struct config_limits *limits);

/* The account of `uid`, valid until quota_free(). */
struct quota_account *quota_account(struct quota *quota, uid_t uid);

/* 0, or -EDQUOT with `err` saying what was asked, what is held and what the limit is. */
int _nodiscard_ quota_charge(struct quota_account *account, enum quota_kind kind, uint64_t n,
                             struct dl_error *err);
void quota_return(struct quota_account *account, enum quota_kind kind, uint64_t n);

uint64_t quota_held(const struct quota_account *account, enum quota_kind kind);

#endif
