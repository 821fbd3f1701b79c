/*
 * The account of an epoch: which of its steps were the share of nodes that are gone, so that nobody
 * knows that they were used. Pure.
 *
 * Each node publishes now and then how far its ranks are at least. Of one that is gone that is the
 * last that is known; those who stay went on at another point, or have come to the epoch's end.
 * What lies between is missing, unless the node comes back and its ranks continue.
 */
#ifndef DL_ACCOUNT_H
#define DL_ACCOUNT_H

#include "daemon/cluster/progress/progress.h"

/* A node that is not there, or of which nothing is heard. */
struct account_absence {
    char node[64];                /* its name */
    uint64_t first, local, world; /* its ranks, in the world that it was in last */
    struct progress_point from;   /* so far they were at least */
    bool has_to;
    struct progress_point to; /* here the others went on without it */
};

/* Steps that each of its ranks was still to take, in the last world where there are any. */
struct account_range {
    uint64_t world, from, to; /* from ≤ step < to; of this many ranks */
    uint64_t steps;           /* in all, in earlier worlds, too */
};

/* Up to `end`, the end of an epoch. False: the node's ranks had all of it, or belong to a later
 * epoch. */
bool _nodiscard_ account_missing(const struct account_absence *absence,
                                 const struct progress_point *end, struct account_range *ret);

/* All ranks have gone back to `at`, in the pass before its own, and have all from there on anew:
 * what is missing before it is missing in the new pass. */
void account_turn(struct account_absence *absence, const struct progress_point *at);

/* Samples in the steps of all its ranks, at most; `batch` in each. */
uint64_t account_samples(const struct account_absence *absence, const struct account_range *range,
                         uint64_t batch);

/* For people: "ranks 4 to 5 of 6 on node c, steps 100 to 149". */
enum { ACCOUNT_TEXT_MAX = 256 };
void account_text(const struct account_absence *absence, const struct account_range *range,
                  char ret[static ACCOUNT_TEXT_MAX]);

/* ---- what nodes tell each other of it ---- */

struct account_entry {
    uint64_t id; /* of the node; not 0 */
    struct account_absence what;
    bool said; /* at the end of that epoch: */
    uint64_t said_epoch;
};

/* For the store: lines such as "gone 1f 4 2 6 c", "from 0 0 6:2" and "to 0 0 6:20", which people
 * can read, too. First of all the end of the latest epoch that came to one; of no history: none
 * did. */
void account_begin(const struct progress_point *ended, struct dl_buffer *out);
void account_add(const struct account_entry *entry, struct dl_buffer *out);

/* `*at` is a text that ends with a NUL, and then what comes next. False: it is none of these. */
bool _nodiscard_ account_read_begin(const char **at, struct progress_point *ret_ended);
bool _nodiscard_ account_read_next(const char **at, struct account_entry *ret);

#endif
