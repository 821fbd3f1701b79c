/*
 * A mixture among the children of another one. The samples that the outer one takes from it are its
 * own positions, in order: so it shares them among its children to within one sample, whatever its
 * neighbours are.
 *
 * It has its own epochs, as long as if it stood alone, or of its `length`. After each it begins
 * again, with other permutations and in another order; with MIX_STOP_NEVER it continues in the same
 * one. Its seed follows from the outer one's and from its place in the list.
 *
 * All its epochs are equally long, since the choices in the last window are the same in each.
 *
 * Its own schedule, which requires MIX_STOP_NEVER, counts steps in positions of the outermost
 * mixture's order. An entry begins at the inner sample whose number is the inner mixture's whole
 * share of the positions before. Only shares count, which depend on no seed, and only the outer
 * weights of the spec (or of the epoch, if each epoch has its own order): weights changed in the
 * middle of an order move no step, since samples before the change must stay the same. Where the
 * outer mixture draws at random, steps are right on average.
 *
 * Pure. Not thread-safe. Internal to the samplers of mixtures.
 */
#ifndef DL_MIX_NESTED_H
#define DL_MIX_NESTED_H

#include "daemon/plan/mix_order.h"
#include "daemon/plan/sampler_mix.h"

struct mixed_nested {
    uint64_t size; /* samples of its epoch */
    bool endless;  /* its epochs are pieces of one order */
    bool keyed;    /* the order and the children are as these say */
    uint64_t seed, cycle;
    struct mix_order order;    /* owned */
    struct mixed_children own; /* owned */
};

/* -EINVAL: that epoch does not exist (plan_mix_count() says why); or -ENOMEM. `mix` is borrowed for
 * the call, `epoch` is the outer one's. `in_turn`: children are not permuted. */
int _nodiscard_ mixed_nested_new(const struct plan_mix *mix, uint64_t epoch, bool in_turn,
                                 struct mixed_nested **ret);
struct mixed_nested *mixed_nested_free(struct mixed_nested *nested); /* NULL is fine */
uint64_t mixed_nested_bytes(const struct mixed_nested *nested);

/* Its nth sample, counted through all its epochs, as an index in the concatenation of its children.
 * `seed` is the one that follows from the outer mixture. */
uint64_t mixed_nested_index(struct mixed_nested *nested, uint64_t seed, uint64_t nth);

/* Positions that mixed_nested_index() would have to go through; mix_order_missing(). */
uint64_t mixed_nested_missing(const struct mixed_nested *nested, uint64_t nth);

#endif
