/*
 * Bounds what the rings of all users, and what the daemon keeps of their datasets and orders, use
 * together: by limits.memory, and by what the system has left (base/available.h). A worker
 * allocates the pages of a segment a little after the daemon has promised them; promised memory
 * counts as used until then.
 */
#ifndef DL_BUDGET_H
#define DL_BUDGET_H

#include "daemon/base/admission.h"
#include "daemon/base/available.h"
#include "daemon/base/config.h"

struct budget {
    const struct config_share *share; /* borrowed: limits.memory */
    uint64_t in_use;                  /* bytes that were taken */
    uint64_t promised;                /* part of it: pages not known to be allocated */
    uint64_t left;                    /* of what was available when it was read */
    uint64_t read_ns;                 /* when; 0: it must be read anew */
    struct available available;       /* as it was read */
    /* Called before a read: settles memory that was filled gradually. May be NULL. */
    void (*look)(void *looker);
    void *looker; /* borrowed */
};

void budget_init(struct budget *budget, const struct config_share *share);

/* 0, or with `err`, which names numbers, place and remedy: -EDQUOT, above limits.memory; -ENOMEM,
 * the system has no more. `remedy` is a further measure: "lower memory.limit". */
int _nodiscard_ budget_take(struct budget *budget, uint64_t bytes, const char *remedy,
                            struct dl_error *err);
/* As budget_take(), which takes nothing. */
int _nodiscard_ budget_check(struct budget *budget, uint64_t bytes, const char *remedy,
                             struct dl_error *err);
/* The same as a claim: what the system has not counts as in use. */
struct admission_claim budget_claim(struct budget *budget, uint64_t bytes);
/* Whether budget_take() would succeed if `returned` bytes in use were returned, by its last
 * reading. */
bool budget_would_take(const struct budget *budget, uint64_t bytes, uint64_t returned);
/* They are there now. */
void budget_settle(struct budget *budget, uint64_t bytes);
/* Returns settled memory, or memory that was never allocated: call budget_settle() first. */
void budget_return(struct budget *budget, uint64_t bytes);

/* What limits.memory is in bytes, where the least limit of memory is `total`. */
uint64_t budget_ceiling(const struct config_share *share, uint64_t total);

#endif
