/* The samples of a loader that took longest to make, as its workers say. Pure. */
#ifndef DL_SLOW_LIST_H
#define DL_SLOW_LIST_H

#include "proto/queue.h"

/* An address: a host's name, and a port. */
enum { SLOW_LISTED = 16, SLOW_HELPER = 264 };

struct slow_row {
    struct slow_sample what;
    char helper[SLOW_HELPER]; /* where that took so long; "": on this machine */
    uint64_t seen;            /* how often it was among them */
};

struct slow_list {
    struct slow_row rows[SLOW_LISTED]; /* the slowest first */
    uint32_t n;
};

/* Each sample has one row, with its longest time. `helper`: a machine's address, or NULL. */
void slow_list_add(struct slow_list *list, const struct slow_sample *what, const char *helper);

#endif
