/*
 * Whether there is room for a loader: the one rule for all that a daemon has only so much of.
 * Pure.
 */
#ifndef DL_ADMISSION_H
#define DL_ADMISSION_H

#include "proto/common/base.h"

/* Of one thing: a user's workers, say, or all users' memory. */
struct admission_claim {
    uint64_t want; /* 0: none of it */
    uint64_t in_use, limit;
    uint64_t returned; /* of what is in use: it comes back if what nobody uses makes way */
};

enum admission {
    ADMISSION_FITS,
    ADMISSION_MAKES_WAY, /* it fits if what nobody uses makes way, all of it at most */
    ADMISSION_WAITS,     /* it would fit if others gave back enough */
    ADMISSION_REFUSED,   /* it never fits, or is not to wait */
};

/* Of several claims the worst counts: all have to be met at once. `waits`: it may, for what others
 * use. */
enum admission admission_decide(const struct admission_claim *claims, size_t n, bool waits);

#endif
