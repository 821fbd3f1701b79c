/*
 * Tables of samples' weights (proto/weight_table.h) that clients have brought: sealed memfds, each
 * mapped once for all sessions and loaders that use it, charged to the user who brought it first,
 * and freed with the last reference.
 *
 * Mapping takes about a nanosecond a byte, so a thread does it. Otherwise main thread only.
 */
#ifndef DL_WEIGHT_TABLES_H
#define DL_WEIGHT_TABLES_H

#include "daemon/serve/loader/crew.h"
#include "daemon/serve/ring/charge.h"
#include "proto/weight_table.h"

struct table_entry;

/* All zero is empty. */
struct weight_tables {
    struct table_entry *tables; /* borrowed from their users */
};

/* The table that a client brings. */
struct table_wanted {
    struct weight_tables *tables;
    struct payer payer;
    struct crew *crew;
    uint32_t uid;
    uint64_t n;
    uint64_t sum;
};

/* The same user's, counted; NULL: it is not here. */
struct weight_table *weight_tables_find(const struct weight_tables *tables, uint32_t uid,
                                        uint64_t n, uint64_t sum);

struct table_bringing;

/*
 * Consumes `fd`. `done` is called from the loop with the table, counted, or with NULL and the
 * reason; perhaps before this returns, which then returns NULL.
 */
typedef void table_brought(void *owner, struct weight_table *table, const struct dl_error *why);
struct table_bringing *weight_tables_bring(const struct table_wanted *wanted, int fd,
                                           table_brought *done, void *owner);
/* The owner goes: `done` is not called any more. */
void table_bringing_forget(struct table_bringing *bringing);

#endif
