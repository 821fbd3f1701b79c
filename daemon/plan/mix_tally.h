/*
 * What was given out of a mixture: how many samples of each child, and how many tokens where their
 * lengths are known, beside what its weights want. It counts what comes, in any order and of any
 * rank, and decides nothing.
 *
 * What is wanted of a batch are the weights at its first sample, times its samples, or its tokens
 * where weights are shares of tokens. Sums of it are doubles: they are shown and not added up to
 * anything.
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

/* A child, or one of a mixture that is one. */
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
    uint32_t n_leaves; /* nodes that are no mixtures */
    uint32_t *tops;    /* owned; nodes of the outermost one's children */
    uint32_t *leaves;  /* owned; nodes of leaves */
    uint64_t *ends;    /* owned; of the leaves in the concatenation; NULL: origins tell */
    enum mix_by by;
    uint64_t length;         /* of an epoch, where all are pieces of one order; else 0 */
    const uint32_t *lengths; /* borrowed, as those of the plan; NULL: not known */
    uint32_t limit;
    bool truncate;
};

/* Of the parameters the mixture, and the tokens; without sizes batches have origins. -EINVAL: this
 * is no mixture, or one of which no plan can be made; or -ENOMEM. */
int _nodiscard_ mix_ruler_init(struct mix_ruler *ruler, const struct plan_params *params);
void mix_ruler_deinit(struct mix_ruler *ruler); /* all zero is fine */

/* A part of a batch: its samples by their numbers in the concatenation, or which leaf gave each.
 * Numbers that there are not are passed over, as they may stand in memory that others write to. */
struct mix_batch {
    uint64_t epoch;
    uint64_t position; /* of its first sample in the epoch's order; about, of batches of tokens */
    const uint64_t *indices;
    uint32_t n;
    const uint8_t *origins; /* NULL: `indices` tell */
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
