/*
 * What the rings of all users, and what the daemon keeps of their datasets and orders, may take
 * together: at most limits.memory, and at most what the system has left (base/available.h). A
 * worker allocates the pages of a segment a little after the daemon has promised them, and what is
 * promised counts as taken until then.
 */
#ifndef DL_BUDGET_H
#define DL_BUDGET_H

#include "daemon/serve/base/available.h"
#include "daemon/serve/base/config.h"

struct budget {
    const struct config_share *share; /* borrowed: limits.memory */
    uint64_t in_use;                  /* bytes that were taken */
    uint64_t promised;          /* of that: of which nobody has said yet that they are there */
    uint64_t left;              /* of what was available when it was read */
    uint64_t read_ns;           /* when; 0: it must be read anew */
    struct available available; /* as it was read */
    /* Before that: settles what has been filled since, of memory that comes little by little. NULL:
     * there is none. */
    void (*look)(void *looker);
    void *looker; /* borrowed */
};

void budget_init(struct budget *budget, const struct config_share *share);

/* 0, or with `err`, which has the numbers, the place and the remedy: -EDQUOT, above limits.memory;
 * -ENOMEM, the system has no more. `remedy` is what else may be done then: "lower memory.limit". */
int _nodiscard_ budget_take(struct budget *budget, uint64_t bytes, const char *remedy,
                            struct dl_error *err);
/* Whether budget_take() would give them if `returned` bytes of those in use came back. As of the
 * last time it was asked. */
bool budget_would_take(const struct budget *budget, uint64_t bytes, uint64_t returned);
/* They are there now. */
void budget_settle(struct budget *budget, uint64_t bytes);
/* Of what is settled, or was never there: budget_settle() is called before. */
void budget_return(struct budget *budget, uint64_t bytes);

/* What limits.memory is in bytes, where the least limit of memory is `total`. */
uint64_t budget_ceiling(const struct config_share *share, uint64_t total);

#endif
