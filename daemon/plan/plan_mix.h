/*
 * Mixtures of datasets as a plan has them: which sample of which child stands at each position of
 * an epoch. The children's samples are numbered one after another, as those of a concatenation.
 *
 * mix_order.h decides whose turn it is, and with which of its samples. A child goes through its
 * samples in turn, or in its own keyed permutation; at the end it begins again with another
 * permutation. Its seed follows from the loader's and from its place in the list.
 *
 * An epoch begins at the beginning of the order, keyed by the epoch, and ends
 *   MIX_STOP_FIRST  before any child's share exceeds its samples: none comes twice
 *   MIX_STOP_ALL    when every child's share is all of its samples: each comes, and some again
 * With MIX_STOP_NEVER epochs are pieces of one order, `length` positions each, and children
 * continue in an epoch where the last one ended.
 *
 * A child may be a mixture itself: mix_nested.h. It counts as many samples as its own epoch has.
 *
 * MIX_BY_TOKENS: shares are of tokens. At each position the child comes that is furthest behind,
 * within about as many tokens as the longest samples have. Only batches of tokens can have it; the
 * order is computed with them, at about 20 ns for each sample and each two children, with
 * MIX_STOP_NEVER also for all epochs before. With MIX_STOP_FIRST it ends before a child would
 * repeat.
 *
 * Weights that were changed while it was read (mix_changes.h) replace those of the schedule from
 * the first change on: mix_timeline.h. If each epoch has its own order, its last change applies
 * from its beginning.
 *
 * MIX_DRAW_RANDOM draws the child at each position, as Hugging Face's interleave_datasets() does:
 * sampler_mix_random.c. Which of its samples comes depends on all earlier draws: a position costs
 * the draws since the nearest known place, about 20 ns each, and once all from the beginning.
 */
#ifndef DL_PLAN_MIX_H
#define DL_PLAN_MIX_H

#include "proto/common/error.h"
#include "proto/mix_changes.h"
#include "proto/mixture.h"

struct spec_dataset;
struct mix_around;

struct plan_mix {
    struct mix_schedule schedule; /* n 0: not a mixture */
    const uint64_t *sizes; /* borrowed: samples of each child; for a mixture, those of its own
                              children instead */
    const struct spec_dataset *children; /* borrowed; NULL if no child is a mixture */
    enum mix_stop stop;                  /* MIX_BY_TOKENS: not MIX_STOP_ALL */
    enum mix_by by;                      /* MIX_BY_TOKENS: with the lengths of plan_params.tokens */
    enum mix_draw draw;              /* MIX_DRAW_RANDOM: only with MIX_STOP_NEVER, and by samples */
    uint64_t length;                 /* MIX_STOP_NEVER */
    struct mix_changes *changes;     /* borrowed; changed weights; may be NULL */
    const struct mix_around *around; /* mix_nested.c's own: what this one stands in; else NULL */
};

static inline bool plan_mix_equal(const struct plan_mix *a, const struct plan_mix *b)
{
    return a->schedule.n == b->schedule.n && a->schedule.points == b->schedule.points &&
           a->schedule.n_points == b->schedule.n_points &&
           a->schedule.step_samples == b->schedule.step_samples && a->sizes == b->sizes &&
           a->children == b->children && a->stop == b->stop && a->by == b->by &&
           a->draw == b->draw && a->length == b->length &&
           mix_changes_equal(a->changes, b->changes);
}

/* The mixture that a dataset's keys say, without sizes; it borrows of them. */
struct plan_mix plan_mix_of(const struct spec_dataset *dataset);

/* Where each child's samples end in the concatenation of all; false: above 2^64. */
bool plan_mix_ends(const struct plan_mix *mix, uint64_t *ret);

/* The same mixture without nested ones: each counts as one child with the samples of its epoch.
 * `sizes`: room for each child, which *ret borrows. Errors as of plan_mix_count(). */
int _nodiscard_ plan_mix_flatten(const struct plan_mix *mix, uint64_t *sizes, struct plan_mix *ret,
                                 struct dl_error *err);

/* Whether such an epoch can be: 0 and how many samples it has, or has at most by tokens; -EINVAL in
 * words; or -ENOMEM. */
int _nodiscard_ plan_mix_count(const struct plan_mix *mix, uint64_t epoch, uint64_t *ret,
                               struct dl_error *err);

#endif
