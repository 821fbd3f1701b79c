/*
 * What the samplers of mixtures share: the children's own orders. Internal to them.
 */
#ifndef DL_SAMPLER_MIX_H
#define DL_SAMPLER_MIX_H

#include "daemon/plan/permute.h"
#include "daemon/plan/sampler.h"

/* Up to this many children, each one's permutation is kept. With more, only that of the last
 * sample: making it anew is 5 % of the cost of finding a sample, and keeping all would take most of
 * the memory. */
enum { MIXED_PERMUTATIONS = 4 };

struct mixed_permutation {
    uint32_t child;
    uint64_t cycle;
    struct permute_native perm; /* length 0: not made */
};

struct mixed_nested;

struct mixed_children {
    uint64_t seed, epoch;
    uint64_t *ends; /* owned; of the children in the concatenation */
    uint32_t n;
    bool in_turn;
    uint32_t n_permutations;
    struct mixed_permutation *permutations; /* owned; NULL: in_turn */
    struct mixed_nested **nested; /* owned, also below; of children that are mixtures; or NULL */
};

/* -EINVAL: too many samples, or (mixed_children_of()) a child is an invalid mixture; or -ENOMEM.
 * Release it in any case. `epoch`: 0 where all epochs are one order. mixed_children_init() does not
 * fill in children that are mixtures. */
int _nodiscard_ mixed_children_init(struct mixed_children *own, const struct plan_mix *mix,
                                    uint64_t seed, uint64_t epoch, bool in_turn);
int _nodiscard_ mixed_children_of(struct mixed_children *own, const struct plan_params *params);
void mixed_children_deinit(struct mixed_children *own);

/* Changes the seed. */
void mixed_children_key(struct mixed_children *own, uint64_t seed);

/* Of memory that children take which are mixtures. */
uint64_t mixed_children_bytes(const struct mixed_children *own);

/* The samples after which a child begins again. */
uint64_t mixed_children_size(const struct mixed_children *own, uint32_t child);

/* What about the child's nth sample is still to be worked out, in positions of mix_order.h. */
uint64_t mixed_children_missing(const struct mixed_children *own, uint32_t child, uint64_t nth);

/* Makes those children of the outermost one that are mixtures. (mix_nested.c) */
int _nodiscard_ mixed_children_nest_all(struct mixed_children *own, const struct plan_mix *mix);

/* The child's nth sample, as an index in the concatenation. */
uint64_t mixed_children_index(struct mixed_children *own, uint32_t child, uint64_t nth);

/* Shares of tokens: MIX_BY_TOKENS. (sampler_mix_tokens.c) */
int _nodiscard_ sampler_mix_tokens_new(const struct plan_params *params, struct sampler **ret);

/* Children drawn at random: MIX_DRAW_RANDOM. (sampler_mix_random.c) */
int _nodiscard_ sampler_mix_random_new(const struct plan_params *params, struct sampler **ret);

#endif
