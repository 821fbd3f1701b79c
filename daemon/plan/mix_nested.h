/*
 * A mixture among the children of another one. The samples that the outer one takes of it are its
 * positions, one after another: so it shares them among its own children to within one sample of
 * what it was given, whoever its neighbours are.
 *
 * It has epochs of its own: as many samples as it would have by itself, or its `length`. When one
 * is through it begins again, with other permutations and in another order, but with MIX_STOP_NEVER
 * it goes on in the same. Its seed follows from the outer one's and from its place in the list.
 *
 * All its epochs are equally long, since the choices in the last window are the same in each.
 *
 * A schedule of its own, which goes with MIX_STOP_NEVER alone, counts its steps as the outermost
 * one would: in positions of that one's order. Each entry begins at the sample of the inner one
 * that is as many as it is due of the positions before, whole ones: by shares alone, which depend
 * on no seed, and by the outer ones of the spec (or, where each epoch has its own order, of the
 * epoch): what is changed in the midst of an order moves no step, since samples before the change
 * must stay what they were. Where the outer one draws at random, its steps are those on average.
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

/* -EINVAL: there is no such epoch (plan_mix_count() says why); or -ENOMEM. `mix` is borrowed for
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
