/*
 * Weights of a mixture that changed while it was read: a list of positions in its order, each with
 * the weights that apply from there. From its first position on, the list replaces the spec's
 * weights and schedule, so a spec, a seed and such a list determine the order. With MIX_STOP_NEVER
 * epochs are pieces of one order: positions count from the beginning of epoch 0, in samples of all
 * ranks. With other stops each epoch has its own order, whose length depends on its weights:
 * weights change only at an epoch's start, and positions are epoch numbers.
 *
 * The same holds for a weighted sampler's weights of single samples. Each epoch has its own order,
 * so position p is p mod `count` of epoch p / count. The list refers to weights only by their
 * checksum; the planner needs the tables (weight_table.h) of the epoch.
 *
 * A list is immutable except for its tables, and reference-counted; a change makes a new list. NULL
 * is the empty list, also below. Its bytes are 64-bit little-endian words: the number of weights in
 * a change; then the position and the float64 weights of each change. For samples: UINT64_MAX, the
 * number of weights, and `count`; then the position and the checksum of each change. The empty list
 * has no bytes.
 *
 * Steps of an order that is packed while its lengths are taken (daemon/plan/plan_lazy.h) have no
 * position before they are there. A change that was asked for before is *ahead*: in place of the
 * position stands the epoch with one of its rows, and the change begins with the first window
 * behind that row. Those come last in a list, and have their position once that window is known.
 *
 * Pure. One thread at a time may count references.
 */
#ifndef DL_MIX_CHANGES_H
#define DL_MIX_CHANGES_H

#include "proto/common/bytes.h"
#include "proto/common/error.h"
#include "proto/mixture.h"
#include "proto/weight_table.h"

struct mix_change {
    uint64_t position; /* below MIX_POSITIONS, or ahead; above that of the change before */
    double *weights;   /* one for each dataset, as those of struct mix_point; NULL: of samples */
    uint64_t sum;      /* of samples: of their table, */
    struct weight_table *table; /* counted; NULL: it is not here */
};

/* In place of positions: of a change that is ahead. Epochs up to 2^30 - 1. */
#define MIX_AHEAD        (UINT64_C(1) << 62)
#define MIX_AHEAD_EPOCHS (UINT64_C(1) << 30)

static inline uint64_t mix_ahead(uint64_t epoch, uint32_t row)
{
    return MIX_AHEAD | epoch << 32 | row;
}

static inline bool mix_is_ahead(uint64_t position)
{
    return position >= MIX_AHEAD;
}

static inline uint64_t mix_ahead_epoch(uint64_t ahead)
{
    return (ahead ^ MIX_AHEAD) >> 32;
}

static inline uint32_t mix_ahead_row(uint64_t ahead)
{
    return (uint32_t)ahead;
}

struct mix_changes {
    uint32_t refs;
    uint32_t n; /* weights of each change */
    uint32_t n_changes;
    bool of_samples;           /* not of a mixture's datasets */
    uint64_t count;            /* of samples: positions of an epoch, ≥ 1 */
    struct mix_change items[]; /* with their weights behind them, in one piece of memory */
};

/* Of the longest list: DL_MAX_MIX_CHANGES of DL_MAX_MIX_CHILDREN weights. */
enum { MIX_CHANGES_BYTES = 8 + DL_BOUND_MIX_CHANGES * 8 * (1 + DL_BOUND_MIX_CHILDREN) };

/* Checks weights for a mixture: 0, or -EINVAL with what is wrong, naming `place`. */
int _nodiscard_ mix_weights_check(const double *weights, uint32_t n, const char *place,
                                  struct dl_error *err);

struct mix_changes *mix_changes_ref(struct mix_changes *changes);
struct mix_changes *mix_changes_unref(struct mix_changes *changes); /* returns NULL */
static inline void mix_changes_unrefp(struct mix_changes **changes)
{
    mix_changes_unref(*changes);
}

/* The list with that change, or with it in place of the one there. Weights are good, and `n` is the
 * list's. -E2BIG: no more have room; -ENOMEM. */
int _nodiscard_ mix_changes_with(const struct mix_changes *changes, const struct mix_change *added,
                                 uint32_t n, struct mix_changes **ret);

/* The same for samples: appends the position and the table of `added`, whose `n` is the list's. */
int _nodiscard_ mix_changes_with_table(const struct mix_changes *changes,
                                       const struct mix_change *added, uint64_t count,
                                       struct mix_changes **ret);
/* The first change that is ahead; UINT64_MAX: none is. */
uint64_t mix_changes_ahead(const struct mix_changes *changes);
/* The list with that one at its position, in place of another there. -ENOMEM. */
int _nodiscard_ mix_changes_place(const struct mix_changes *changes, uint64_t position,
                                  struct mix_changes **ret);
/* Whether they are equal but for changes that have a position in `placed` and are ahead in the
 * other. */
bool mix_changes_is_placed(const struct mix_changes *changes, const struct mix_changes *placed);
/* The list reduced to changes before the position, with a reference. -ENOMEM. */
int _nodiscard_ mix_changes_before(struct mix_changes *changes, uint64_t position,
                                   struct mix_changes **ret);
/* Which of a list of samples an epoch's order depends on: changes *ret_first up to the one before
 * the returned. */
uint32_t mix_changes_of_epoch(const struct mix_changes *changes, uint64_t epoch,
                              uint32_t *ret_first);
/* Copies into the list those tables that `from` has, or drops all of them (NULL). */
void mix_changes_share_tables(struct mix_changes *changes, const struct mix_changes *with);

bool mix_changes_equal(const struct mix_changes *a, const struct mix_changes *b);
/* Whether `all` contains change i of `part`; whether it contains every change. */
bool mix_changes_has(const struct mix_changes *all, const struct mix_changes *part, uint32_t i);
bool mix_changes_within(const struct mix_changes *part, const struct mix_changes *all);
/* The first position that one of them has and the other has not, or with other weights; UINT64_MAX:
 * they are equal. */
uint64_t mix_changes_differ_at(const struct mix_changes *a, const struct mix_changes *b);

uint64_t mix_changes_bytes(const struct mix_changes *changes); /* of memory */

/* Appends its bytes. -ENOMEM. */
int _nodiscard_ mix_changes_write(const struct mix_changes *changes, struct dl_buffer *ret);
/* -EINVAL if the bytes are malformed; -ENOMEM. */
int _nodiscard_ mix_changes_read(struct dl_span bytes, struct mix_changes **ret);

/*
 * Attach: appends the bytes, their number and a mark, to follow the token of a state
 * (state_token.h). Split: cuts these off the end of `state` and returns the bytes, or an empty
 * span.
 */
int _nodiscard_ mix_changes_attach(struct dl_span bytes, struct dl_buffer *ret);
struct dl_span mix_changes_split(struct dl_span *state);

#endif
