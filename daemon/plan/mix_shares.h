/*
 * The shares of a mixture: how much of the first t positions each child is due, exactly.
 *
 * Weights are rounded once, to units of 2^-80 that add up to 1; all later arithmetic is in
 * integers, so that every machine computes the same order. A schedule is a list of points, each
 * with a position and the weights from there on. Between two points the weights stay constant or,
 * if the second is a ramp, move to its weights in a straight line. Positions are counted from the
 * schedule's beginning, in samples of all ranks.
 *
 * share(i, t) never falls as t grows, grows by at most 1 a position, and all children's add up to
 * t. The exception: where a child's weight becomes 0 or stops being 0, each child's share is set to
 * the whole number of samples it has received, so that no debt outlives a child's participation.
 * The positions between two such points are an *era*. mix_order.h never looks back beyond an era,
 * nor beyond each child's last sample.
 *
 * Pure. Not thread-safe.
 */
#ifndef DL_MIX_SHARES_H
#define DL_MIX_SHARES_H

#include "proto/mixture.h"

#define MIX_RAMP_MAX (UINT64_C(1) << 32) /* positions of one ramp */
#define MIX_NEVER    UINT64_MAX

enum {
    MIX_UNIT_BITS = 80,
};

typedef unsigned __int128 mix_units;

struct mix_stretch {
    uint64_t begin, end; /* of positions; the last one's end is MIX_POSITIONS */
    bool era;            /* one begins here */
    bool ramp;
    mix_units *base;  /* the shares at `begin`; NULL in the first stretch: all 0 */
    mix_units *from;  /* the weights at `begin` */
    __int128 *climbs; /* ramp: what they grow by each position; else NULL */
};

struct mix_shares {
    uint32_t n; /* children */
    uint32_t n_stretches;
    struct mix_stretch *stretches; /* owned, with all that they point to */
};

/* -EINVAL: what mixture.h and the limits above exclude; or -ENOMEM. The bases of all but the first
 * stretch are left to mix_shares_settle(). */
int _nodiscard_ mix_shares_init(struct mix_shares *shares, const struct mix_schedule *schedule);
void mix_shares_deinit(struct mix_shares *shares);
uint64_t mix_shares_bytes(const struct mix_shares *shares); /* of memory */

/* Fills in a stretch's base after those of all stretches before it. `counts`: the samples each
 * child has received at its beginning, if an era begins there. */
void mix_shares_settle(struct mix_shares *shares, uint32_t stretch, const uint64_t *counts);

/* The stretch of a position below MIX_POSITIONS, and the first one of its era. */
uint32_t mix_shares_stretch(const struct mix_shares *shares, uint64_t position);
uint32_t mix_shares_era(const struct mix_shares *shares, uint32_t stretch);

/* Child i's share of positions 0..t-1, which lie in the stretch or reach its end. */
mix_units mix_shares_at(const struct mix_shares *shares, uint32_t stretch, uint32_t child,
                        uint64_t t);

/* Child i's weight at a position of the stretch, in units; depends on no base. */
mix_units mix_shares_weight(const struct mix_shares *shares, uint32_t stretch, uint32_t child,
                            uint64_t position);

/* The least t, from the stretch's beginning to the end of its era, at which the child's share
 * reaches `wanted`; MIX_NEVER if it does not. */
uint64_t mix_shares_reach(const struct mix_shares *shares, uint32_t stretch, uint32_t child,
                          mix_units wanted);

static inline uint64_t mix_whole(mix_units share)
{
    return (uint64_t)(share >> MIX_UNIT_BITS);
}

static inline mix_units mix_units_of(uint64_t samples)
{
    return (mix_units)samples << MIX_UNIT_BITS;
}

#endif
