/*
 * Counts what was delivered from a mixture: samples of each child, and tokens where lengths are
 * known, beside what its weights ask for. Batches may come in any order and from any rank; nothing
 * depends on the counts.
 *
 * A batch's target is the weights at its first sample, times its samples, or its tokens where
 * weights are shares of tokens. Its sums are doubles: they are only shown.
 *
 * Pure. A ruler does not change once it is made: threads may share one.
 */
#ifndef DL_MIX_TALLY_H
#define DL_MIX_TALLY_H

#include "daemon/plan/mix_timeline.h"
#include "daemon/plan/plan.h"

/* Of one child. */
struct mix_tally {
    double wanted;
    uint64_t samples;
    uint64_t tokens; /* 0 where lengths are not known */
};

/* A child, or a nested mixture's child. */
struct mix_node {
    uint32_t parent; /* the mixture's node; MIX_NODE_NONE: it is a child of the outermost one */
    double weight;   /* in that one, of all; where that one has a schedule, there are `steps` */
    uint32_t child;  /* in that one, counted from 0 */
    struct mix_timeline *steps; /* owned; of a mixture that has a schedule; else NULL */
};
#define MIX_NODE_NONE UINT32_MAX

/* What samples are counted by. Nodes are in the order of the spec, each mixture before its own. */
struct mix_ruler {
    struct mix_timeline timeline; /* owned */
    struct mix_node *nodes;       /* owned */
    uint32_t n_nodes;
    uint32_t n_leaves; /* nodes that are not mixtures */
    uint32_t *tops;    /* owned; nodes of the outermost one's children */
    uint32_t *leaves;  /* owned; nodes of leaves */
    uint64_t *ends;    /* owned; of the leaves in the concatenation; NULL: use origins */
    enum mix_by by;
    uint64_t length;         /* of an epoch, where all are pieces of one order; else 0 */
    const uint32_t *lengths; /* borrowed, as those of the plan; may be NULL */
    uint32_t limit;
    bool truncate;
};

/* Uses the mixture and the tokens of the parameters; without sizes, batches must have origins.
 * -EINVAL if it is not a mixture, or cannot be planned; or -ENOMEM. */
int _nodiscard_ mix_ruler_init(struct mix_ruler *ruler, const struct plan_params *params);
void mix_ruler_deinit(struct mix_ruler *ruler); /* all zero is fine */

/* A part of a batch: its samples by their numbers in the concatenation, or which leaf gave each.
 * Numbers that there are not are passed over, as they may stand in memory that others write to. */
struct mix_batch {
    uint64_t epoch;
    uint64_t position; /* of its first sample in the epoch's order; about, of batches of tokens */
    const uint64_t *indices;
    uint32_t n;
    const uint8_t *origins; /* NULL: use `indices` */
};

/* Adds the batch to `tallies`, one for each node. */
void mix_tally_add(const struct mix_ruler *ruler, const struct mix_batch *batch,
                   struct mix_tally *tallies);

/* Adds `n` tallies to as many others. */
void mix_tally_merge(struct mix_tally *tallies, const struct mix_tally *more, uint32_t n);

/* A child's shares of what all have together, 0 where there is nothing. */
double mix_tally_wanted(const struct mix_tally *child, const struct mix_tally *sum);
double mix_tally_share(const struct mix_tally *child, const struct mix_tally *sum);
double mix_tally_token_share(const struct mix_tally *child, const struct mix_tally *sum);

#endif
