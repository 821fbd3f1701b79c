/*
 * Samplers: the sequence of indices that an epoch is cut from, before sharding and batching. One
 * object for each kind behind a small table of functions, which only plan.c calls.
 *
 * Positions are 0..count-1. Positions may be requested in any order, and each always has the same
 * index; a kind that can only be replayed from its start keeps what it has drawn.
 */
#ifndef DL_PLAN_SAMPLER_H
#define DL_PLAN_SAMPLER_H

#include "daemon/plan/plan.h"

struct sampler;

struct sampler_kind_ops {
    /* What plan_backlog() reports for positions 0..end-1, end ≥ 1. NULL: always 0. */
    uint64_t (*missing)(const struct sampler *sampler, uint64_t end);
    /*
     * Of an order that depends on lengths which are still being taken: the samples whose lengths
     * the next extend() needs, to `ret`, which has room for `tokens.lazy` of them; the same ones
     * until that is called. How many; 0: positions 0..end-1 are known. NULL: no length is needed.
     */
    size_t (*lacks)(struct sampler *sampler, uint64_t end, uint64_t *ret);
    /* Makes positions 0..end-1 known; with lacks(), as many as those lengths allow: `known`. NULL:
     * they always are. */
    void (*extend)(struct sampler *sampler, uint64_t end);
    /* With lacks(): takes the weights that come from known positions on from another one, whose
     * mixture differs in these alone. NULL: it is replaced by the other. */
    void (*adopt)(struct sampler *sampler, struct sampler *other);
    /* The index at a position that is known. */
    uint64_t (*at)(struct sampler *sampler, uint64_t position);
    /* The same of each of positions[0..n), in its place. NULL: by one call of at() each. */
    void (*many)(struct sampler *sampler, uint64_t *positions, size_t n);
    void (*free)(struct sampler *sampler);
};

struct sampler {
    const struct sampler_kind_ops *ops;
    uint64_t count; /* with lacks(): at most, until the last one is known */
    uint64_t known; /* positions that are; with lacks() */
    uint64_t bytes; /* that its lists take, and its positions when all of them are known */
};

/* Each of positions[0..n) becomes its index. */
void sampler_take(struct sampler *sampler, uint64_t *positions, size_t n);

/* The sampler that the parameters describe. Returns 0, -EINVAL or -ENOMEM. */
int _nodiscard_ sampler_new(const struct plan_params *params, struct sampler **ret);
struct sampler *sampler_free(struct sampler *sampler); /* NULL is fine */

/* ---- the kinds, for sampler_new() ----------------------------------------------------------- */

/* `count` of `length` positions without replacement: permutations in a row. (sampler_random.c) */
int _nodiscard_ sampler_permuted_torch_new(const struct plan_params *params, uint64_t length,
                                           uint64_t count, struct sampler **ret);
int _nodiscard_ sampler_permuted_native_new(const struct plan_params *params, uint64_t length,
                                            uint64_t count, struct sampler **ret);
/* `count` of `length` positions with replacement. (sampler_random.c) */
int _nodiscard_ sampler_drawn_torch_new(const struct plan_params *params, uint64_t length,
                                        uint64_t count, struct sampler **ret);
int _nodiscard_ sampler_drawn_native_new(const struct plan_params *params, uint64_t length,
                                         uint64_t count, struct sampler **ret);
/* All samples once, near those that lie near them: params->block. (sampler_blocks.c) */
int _nodiscard_ sampler_blocks_new(const struct plan_params *params, struct sampler **ret);
/* By params->weights and params->changes, with and without replacement. (sampler_weighted.c) */
int _nodiscard_ sampler_weighted_new(const struct plan_params *params, struct sampler **ret);

/* The samples of params->mix. (sampler_mix.c) */
int _nodiscard_ sampler_mix_new(const struct plan_params *params, struct sampler **ret);

/* Random bits by position; `stream` keeps different uses of one seed and epoch apart. */
struct sampler_key {
    uint64_t seed;
    uint64_t epoch;
    uint64_t length;
    uint64_t leg; /* 0; or the position from which on something else holds */
    uint64_t stream;
};
struct sampler_bits {
    uint64_t high;
    uint64_t low;
};
struct sampler_bits sampler_native_bits(const struct sampler_key *key, uint64_t position);

#endif
