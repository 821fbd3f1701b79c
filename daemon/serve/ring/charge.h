/*
 * The daemon's own memory used for one of its users: charged to the user, held against the limit of
 * all users and what the system has left (budget.h), and returned as a whole. Main thread.
 */
#ifndef DL_CHARGE_H
#define DL_CHARGE_H

#include "daemon/base/quota.h"
#include "daemon/serve/ring/budget.h"

/* Pays for memory. */
struct payer {
    struct quota_account *account; /* borrowed, outlives the charge; or NULL */
    struct budget *budget;         /* the same */
};

/* All zero: nothing was taken. */
struct charge {
    struct payer payer;
    uint64_t bytes;
    uint64_t promised; /* bytes of it that may not be there yet; 0 below a megabyte */
};

/*
 * 0; or -EDQUOT, or -ENOMEM, with `err`, which has the numbers and ends with `remedy` if the system
 * has no more. Until charge_settle() the memory counts as promised. Below a megabyte the system is
 * not asked.
 */
int _nodiscard_ charge_take(struct charge *charge, const struct payer *payer, uint64_t bytes,
                            const char *remedy, struct dl_error *err);
/* It is allocated now, and in the system's figures. */
void charge_settle(struct charge *charge);
/* `bytes` of it are allocated now, no fewer than before. */
void charge_settle_up_to(struct charge *charge, uint64_t bytes);
/* Reduces it to `bytes`; never enlarges it. Must be settled. */
void charge_shrink(struct charge *charge, uint64_t bytes);
void charge_return(struct charge *charge);

#endif
