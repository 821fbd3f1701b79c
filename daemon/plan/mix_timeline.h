/*
 * The weights of a mixture all along its order: those of its schedule, and from each change on
 * (mix_changes.h) those of that change. A change begins a *leg*, a separate mixture except for the
 * samples that its children have already given: the order before it is unaffected, to the bit, and
 * the order after it depends only on how many samples each child has given.
 *
 * Where the order is exact, each leg has its own (mix_order.h), whose shares start at the leg: no
 * debt carries over. Positions count from there, and the leg keys its choices.
 *
 * Pure. Not thread-safe, but for timelines, which do not change once they are made.
 */
#ifndef DL_MIX_TIMELINE_H
#define DL_MIX_TIMELINE_H

#include "daemon/plan/mix_order.h"
#include "proto/mix_changes.h"

/* ---- weights only ---------------------------------------------------------------------------- */

struct mix_leg {
    uint64_t begin;           /* its first position */
    struct mix_shares shares; /* owned; without bases: only its weights are looked at */
};

struct mix_timeline {
    uint32_t n; /* children */
    uint32_t n_legs;
    struct mix_leg *legs; /* owned */
};

/* -EINVAL: see mix_shares_init(); or -ENOMEM. `changes` may be NULL, and are copied. */
int _nodiscard_ mix_timeline_init(struct mix_timeline *timeline,
                                  const struct mix_schedule *schedule,
                                  const struct mix_changes *changes);
void mix_timeline_deinit(struct mix_timeline *timeline); /* all zero is fine */
uint64_t mix_timeline_bytes(const struct mix_timeline *timeline);

/* The weights at one position below MIX_POSITIONS. */
struct mix_spot {
    const struct mix_shares *shares;
    uint32_t stretch;
    uint64_t at; /* the position as its shares count it */
};
struct mix_spot mix_timeline_spot(const struct mix_timeline *timeline, uint64_t position);
/* If each epoch has its own order, and changes begin with an epoch: the weights at a position of
 * one. */
struct mix_spot mix_timeline_spot_of(const struct mix_timeline *timeline, uint64_t epoch,
                                     uint64_t position);

static inline mix_units mix_spot_weight(const struct mix_spot *spot, uint32_t child)
{
    return mix_shares_weight(spot->shares, spot->stretch, child, spot->at);
}

/* Whether the weights are those at the position before. */
static inline bool mix_spot_is_as_before(const struct mix_spot *spot)
{
    const struct mix_stretch *stretch = &spot->shares->stretches[spot->stretch];

    return !stretch->ramp && spot->at > stretch->begin;
}

/* ---- exact orders ---------------------------------------------------------------------------- */

struct mix_later {
    uint64_t begin;
    struct mix_order order; /* owned */
    uint64_t *before;       /* owned; samples that each child has had by then */
};

struct mix_legs {
    struct mix_order first;  /* owned */
    uint32_t n;              /* changes */
    uint32_t settled;        /* legs whose starting counts are known */
    struct mix_later *later; /* owned */
};

/* As mix_order_init(); `changes` may be NULL. */
int _nodiscard_ mix_legs_init(struct mix_legs *legs, const struct mix_schedule *schedule,
                              const struct mix_changes *changes, uint64_t seed, uint64_t epoch);
void mix_legs_deinit(struct mix_legs *legs);

uint64_t mix_legs_bytes(const struct mix_legs *legs); /* of what changes add */

/* As in mix_order.h. A position behind changes first places each change, once. */
struct mix_place mix_legs_at(struct mix_legs *legs, uint64_t position);
uint64_t mix_legs_missing(const struct mix_legs *legs, uint64_t position);

/* About how many samples of the child come before the position. */
uint64_t mix_legs_about(const struct mix_legs *legs, uint64_t position, uint32_t child);

#endif
