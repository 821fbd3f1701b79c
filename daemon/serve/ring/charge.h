/*
 * Memory of the daemon's own that one of its users has it take: charged to the user, held against
 * what all users may have and what the system has left (budget.h), and all of it returned at once.
 * Main thread.
 */
#ifndef DL_CHARGE_H
#define DL_CHARGE_H

#include "daemon/serve/base/quota.h"
#include "daemon/serve/ring/budget.h"

/* Who pays. */
struct payer {
    struct quota_account *account; /* borrowed, outlives what was taken; NULL: nobody's */
    struct budget *budget;         /* likewise; NULL: none */
};

/* All zero: nothing was taken. */
struct charge {
    struct payer payer;
    uint64_t bytes;
    uint64_t promised; /* bytes of it that may not be there yet; 0 below a megabyte */
};

/*
 * 0; or -EDQUOT, or -ENOMEM, with `err`, which has the numbers and ends with `remedy` where the
 * system has no more. Until charge_settle() it counts as memory that is still to come. Below a
 * megabyte the system is not asked.
 */
int _nodiscard_ charge_take(struct charge *charge, const struct payer *payer, uint64_t bytes,
                            const char *remedy, struct dl_error *err);
/* It is there now, as the system's numbers have it. */
void charge_settle(struct charge *charge);
/* So much of it is there now, which is no less than before. */
void charge_settle_up_to(struct charge *charge, uint64_t bytes);
/* So much is left of it; more than there was changes nothing. Settled before. */
void charge_shrink(struct charge *charge, uint64_t bytes);
void charge_return(struct charge *charge);

#endif
