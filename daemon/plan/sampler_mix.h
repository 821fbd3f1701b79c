/*
 * What the samplers of mixtures share: the children's own orders. Internal to them.
 */
#ifndef DL_SAMPLER_MIX_H
#define DL_SAMPLER_MIX_H

#include "daemon/plan/permute.h"
#include "daemon/plan/sampler.h"

/* Of so few children each one's permutation is kept. Of more, that of the last sample alone: making
 * one anew is 5 % of what finding a sample takes, and those of all would take most of the memory.
 */
enum { MIXED_KEPT = 4 };

struct mixed_permutation {
    uint32_t child;
    uint64_t cycle;
    struct permute_native perm; /* length 0: there is none */
};

struct mixed_children {
    uint64_t seed, epoch;
    uint64_t *ends; /* owned; of the children in the concatenation */
    bool in_turn;
    uint32_t n_kept;
    struct mixed_permutation *kept; /* owned; NULL: in_turn */
};

/* -ENOMEM. */
int _nodiscard_ mixed_children_init(struct mixed_children *own, const struct plan_params *params);
void mixed_children_deinit(struct mixed_children *own);

uint64_t mixed_children_size(const struct mixed_children *own, uint32_t child);

/* The child's nth sample, as an index in the concatenation. */
uint64_t mixed_children_index(struct mixed_children *own, uint32_t child, uint64_t nth);

/* Shares of tokens: MIX_BY_TOKENS. (sampler_mix_tokens.c) */
int _nodiscard_ sampler_mix_tokens_new(const struct plan_params *params, struct sampler **ret);

/* Children drawn at random: MIX_DRAW_RANDOM. (sampler_mix_random.c) */
int _nodiscard_ sampler_mix_random_new(const struct plan_params *params, struct sampler **ret);

#endif
