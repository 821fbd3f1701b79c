/*
 * The order of a mixture: which child stands at each position, and which of its samples.
 *
 * Let share(i, t) be what child i is due of the first t positions (mix_shares.h). At every t the
 * child has got floor(share) or ceil(share) samples: never a whole sample more or less than it is
 * due. That gives the m-th sample of a child a window of positions: it may come as soon as the
 * share exceeds m, and must come before the share reaches m + 1.
 *
 * Earliest deadline first meets all of these windows, since the shares themselves are a schedule of
 * fractions that does. Its state at any time does not depend on where it was begun: two runs begun
 * in different states, each ahead with the samples that end first, agree once every child's first
 * window is over. (The latest sample that only one of them has had is no later than before whenever
 * they differ, as each takes the earliest it can; so they agree at the latest when that one is
 * due.) So position k is found by a run from just before the last whole sample of the rarest child:
 * about 2 / its weight positions, however far k lies.
 *
 * Its state is used at multiples of MIX_WINDOW only. Between two of them the samples it has taken
 * are dealt anew, by keyed random choices among all orders that keep within the windows of samples:
 * a sample may be chosen where every set of samples that are due by some position still has room
 * before it. That is the jitter, which leaves no period to be seen.
 *
 * For positions, eras and limits see mix_shares.h. Pure. Not thread-safe.
 */
#ifndef DL_MIX_ORDER_H
#define DL_MIX_ORDER_H

#include "daemon/plan/mix_shares.h"

enum { MIX_WINDOW = 64 };

struct mix_child {
    uint64_t count;   /* of its samples before `mix_walk.at` */
    uint64_t release; /* the first position of the next one's window */
    uint64_t due;     /* the position behind it; MIX_NEVER: not in this era */
};

/* A run of earliest deadline first. */
struct mix_walk {
    uint64_t at;                /* positions before this one are taken */
    uint32_t stretch;           /* the stretch of `at` */
    struct mix_child *children; /* owned */
};

struct mix_order {
    struct mix_shares shares; /* owned */
    struct mix_walk walk;     /* its `at` is `end` */
    uint64_t seed, epoch;
    uint64_t plain;            /* from this window's beginning on, choices use seed 0 and epoch 0 */
    uint64_t begin, end;       /* of the current window; both 0: not computed */
    uint8_t child[MIX_WINDOW]; /* at each position of it */
    uint8_t to_come[MIX_WINDOW]; /* samples of that child from there to the window's end */
};

/* -EINVAL: see mix_shares_init(); or -ENOMEM. `seed` and `epoch` key the choices. */
int _nodiscard_ mix_order_init(struct mix_order *order, const struct mix_schedule *schedule,
                               uint64_t seed, uint64_t epoch);
void mix_order_deinit(struct mix_order *order);
void mix_order_key(struct mix_order *order, uint64_t seed, uint64_t epoch); /* other ones */
uint64_t mix_order_bytes(const struct mix_order *order); /* of memory, itself included */

/* The nth sample of the child, counted from 0, stands at the position, below MIX_POSITIONS. */
struct mix_place {
    uint32_t child;
    uint64_t nth;
};
struct mix_place mix_order_at(struct mix_order *order, uint64_t position);

/* Positions that mix_order_at() would have to go through, each about 0.3 µs. */
uint64_t mix_order_missing(const struct mix_order *order, uint64_t position);

/* How many samples of each child stand before `position`. */
void mix_order_counts(struct mix_order *order, uint64_t position, uint64_t *ret);

#endif
