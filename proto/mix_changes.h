/*
 * Weights of a mixture that were changed while it was read: a list of positions of its order, each
 * with the weights from there on. What it says holds instead of the spec's weights and schedule
 * from its first position on, so that a spec, a seed and such a list are one order. With
 * MIX_STOP_NEVER epochs are pieces of one order: positions count from the beginning of epoch 0, in
 * samples of all ranks. With other stops each epoch has an order of its own, whose length depends
 * on its weights: weights change with an epoch, and positions are numbers of epochs.
 *
 * Likewise weights of single samples, of a weighted sampler. Its epochs have an order each, so
 * position p is p mod `count` of epoch p / count. The list names them by their sum alone;
 * whoever plans by it has to have the tables (weight_table.h) that the epoch needs.
 *
 * A list is never changed but for its tables, and counted: whoever wants another makes one. NULL is
 * the empty list, also below. Its bytes are 64-bit little-endian words: how many weights a change
 * has; then, of each change, its position and its weights, float64. Of samples: UINT64_MAX, how
 * many weights, and `count`; then, of each change, its position and its sum. The empty list has no
 * bytes.
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
    uint64_t position; /* below MIX_POSITIONS, and above that of the change before */
    double *weights;   /* one for each dataset, as those of struct mix_point; NULL: of samples */
    uint64_t sum;      /* of samples: of their table, */
    struct weight_table *table; /* counted; NULL: it is not here */
};

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

/* Whether a mixture may have such weights: 0, or -EINVAL with what is wrong of `place`. */
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

/* The same for samples: of `added` the position and the table, whose `n` is the list's. */
int _nodiscard_ mix_changes_with_table(const struct mix_changes *changes,
                                       const struct mix_change *added, uint64_t count,
                                       struct mix_changes **ret);
/* The list with those before the position alone, counted. -ENOMEM. */
int _nodiscard_ mix_changes_before(struct mix_changes *changes, uint64_t position,
                                   struct mix_changes **ret);
/* Which of a list of samples an epoch's order depends on: changes *ret_first up to the one before
 * the returned. */
uint32_t mix_changes_of_epoch(const struct mix_changes *changes, uint64_t epoch,
                              uint32_t *ret_first);
/* Gives the list those of its tables that another has, or lets all go (NULL). */
void mix_changes_share_tables(struct mix_changes *changes, const struct mix_changes *with);

bool mix_changes_equal(const struct mix_changes *a, const struct mix_changes *b);
/* Whether change i of `part` is one of `all`; each of them. */
bool mix_changes_has(const struct mix_changes *all, const struct mix_changes *part, uint32_t i);
bool mix_changes_within(const struct mix_changes *part, const struct mix_changes *all);
/* The first position that one of them has and the other has not, or with other weights; UINT64_MAX:
 * they are equal. */
uint64_t mix_changes_differ_at(const struct mix_changes *a, const struct mix_changes *b);

uint64_t mix_changes_bytes(const struct mix_changes *changes); /* of memory */

/* Appends its bytes. -ENOMEM. */
int _nodiscard_ mix_changes_write(const struct mix_changes *changes, struct dl_buffer *ret);
/* -EINVAL: these are no such bytes; -ENOMEM. */
int _nodiscard_ mix_changes_read(struct dl_span bytes, struct mix_changes **ret);

/*
 * Behind the token of a state (state_token.h) the bytes are followed by their number and a mark.
 * Split: cuts that from the end of `state`, and returns the bytes; empty: there are none.
 */
int _nodiscard_ mix_changes_attach(struct dl_span bytes, struct dl_buffer *ret);
struct dl_span mix_changes_split(struct dl_span *state);

#endif
