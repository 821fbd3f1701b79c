/* How much of a prefix each child of a mixture is due. See mix_shares.h. */
#include "daemon/plan/mix_shares.h"
#include "proto/common/bisect.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#define MIX_ONE ((mix_units)1 << MIX_UNIT_BITS)

/* ---- weights --------------------------------------------------------------------------------- */

/* weight / sum in units, rounded down, but for the weight's own last bits: long division, each half
 * of whose digits fmod() finds without rounding. weight ≤ sum; both at most 1. */
static mix_units mix_shares_divide(double weight, double sum)
{
    enum { HALF = MIX_UNIT_BITS / 2 };
    mix_units quotient = 0;

    for (unsigned half = 0; half < 2; half++) {
        double scaled = ldexp(weight, HALF), rest = fmod(scaled, sum);

        quotient = quotient << HALF | (mix_units)llround((scaled - rest) / sum);
        weight = rest;
    }
    return quotient;
}

/* In units that add up to one: what rounding leaves goes to the heaviest. */
static bool mix_shares_round(const double *weights, uint32_t n, mix_units *ret)
{
    double sum = 0;
    mix_units given = 0;
    uint32_t heaviest = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (!(weights[i] >= 0))
            return false;
        sum += weights[i];
        heaviest = weights[i] > weights[heaviest] ? i : heaviest;
    }
    if (!(sum > 0) || isinf(sum))
        return false;
    int exponent;
    double scaled_sum = frexp(sum, &exponent); /* of any size, so that no digit is lost below */
    for (uint32_t i = 0; i < n; i++) {
        if (weights[i] > 0 && weights[i] / sum < 1.0 / DL_MIX_LEAST_SHARE)
            return false;
        ret[i] = mix_shares_divide(ldexp(weights[i], -exponent), scaled_sum);
        given += ret[i];
    }
    ret[heaviest] += MIX_ONE - given; /* modulo 2^128, should they be too many */
    return true;
}

/* Towards 0, so that no weight falls below it; what that leaves goes to the child that is heaviest
 * in all, where it is nothing: below n / (2^80 · positions) of what it has. */
static void mix_shares_climb(struct mix_stretch *stretch, const mix_units *to, uint32_t n)
{
    __int128 length = (__int128)(stretch->end - stretch->begin), sum = 0;
    uint32_t heaviest = 0;

    for (uint32_t i = 0; i < n; i++) {
        stretch->climbs[i] = ((__int128)to[i] - (__int128)stretch->from[i]) / length;
        sum += stretch->climbs[i];
        if (stretch->from[i] + to[i] > stretch->from[heaviest] + to[heaviest])
            heaviest = i;
    }
    stretch->climbs[heaviest] -= sum;
}

/* ---- stretches ------------------------------------------------------------------------------- */

static int mix_shares_alloc(struct mix_stretch *stretch, uint32_t n)
{
    stretch->base = stretch->begin > 0 ? calloc(n, sizeof *stretch->base) : NULL;
    stretch->from = calloc(n, sizeof *stretch->from);
    stretch->climbs = stretch->ramp ? calloc(n, sizeof *stretch->climbs) : NULL;
    return (stretch->base || stretch->begin == 0) && stretch->from &&
                   (!stretch->ramp || stretch->climbs)
               ? 0
               : -ENOMEM;
}

/* Whether a child's weight is 0 at exactly one end of the point, so that an era begins or ends. */
static bool mix_shares_is_era(const struct mix_point *point, uint32_t n, bool ramp_follows)
{
    for (uint32_t i = 0; i < n; i++) {
        bool before = point[-1].weights[i] > 0, here = point->weights[i] > 0;
        bool after = ramp_follows ? point[1].weights[i] > 0 : here;

        if (!(before && here && after) && (before || here || after))
            return true;
    }
    return false;
}

/* Of the schedule's point i; UINT64_MAX: it is beyond 64 bits. */
static uint64_t mix_shares_position(const struct mix_schedule *schedule, uint32_t i)
{
    uint64_t position;

    return mul_overflows(schedule->points[i].step, schedule->step_samples, &position) ? UINT64_MAX
                                                                                      : position;
}

/* From points[i] on, to the next point or the end. */
static int mix_shares_add(struct mix_shares *shares, const struct mix_schedule *schedule,
                          uint32_t i)
{
    const struct mix_point *points = schedule->points;
    struct mix_stretch *stretch = &shares->stretches[shares->n_stretches++];
    bool last = i + 1 == schedule->n_points;
    mix_units to[DL_BOUND_MIX_CHILDREN];

    *stretch =
        (struct mix_stretch){.begin = mix_shares_position(schedule, i),
                             .end = last ? MIX_POSITIONS : mix_shares_position(schedule, i + 1),
                             .ramp = !last && points[i + 1].ramp};
    stretch->era = i == 0 || mix_shares_is_era(&points[i], shares->n, stretch->ramp);
    if (stretch->end <= stretch->begin || stretch->end > MIX_POSITIONS ||
        (stretch->ramp && stretch->end - stretch->begin > MIX_RAMP_MAX))
        return -EINVAL;
    int r = mix_shares_alloc(stretch, shares->n);
    if (r == 0 && !mix_shares_round(points[i].weights, shares->n, stretch->from))
        r = -EINVAL;
    if (r < 0 || !stretch->ramp)
        return r;
    if (!mix_shares_round(points[i + 1].weights, shares->n, to))
        return -EINVAL;
    mix_shares_climb(stretch, to, shares->n);
    return 0;
}

int mix_shares_init(struct mix_shares *shares, const struct mix_schedule *schedule)
{
    int r = 0;

    *shares = (struct mix_shares){.n = schedule->n};
    if (schedule->n == 0 || schedule->n > DL_MAX_MIX_CHILDREN || schedule->n_points == 0 ||
        schedule->n_points > DL_MAX_MIX_POINTS || schedule->points[0].step != 0 ||
        schedule->points[0].ramp)
        return -EINVAL;
    shares->stretches = calloc(schedule->n_points, sizeof *shares->stretches);
    if (!shares->stretches)
        return -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < schedule->n_points; i++)
        r = mix_shares_add(shares, schedule, i);
    if (r < 0)
        mix_shares_deinit(shares);
    return r;
}

void mix_shares_deinit(struct mix_shares *shares)
{
    for (uint32_t i = 0; i < shares->n_stretches; i++) {
        free(shares->stretches[i].base);
        free(shares->stretches[i].from);
        free(shares->stretches[i].climbs);
    }
    free(shares->stretches);
    *shares = (struct mix_shares){0};
}

uint64_t mix_shares_bytes(const struct mix_shares *shares)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < shares->n_stretches; i++)
        bytes += sizeof *shares->stretches + (1U + (shares->stretches[i].base != NULL) +
                                              (shares->stretches[i].climbs != NULL)) *
                                                 shares->n * sizeof(mix_units);
    return bytes;
}

void mix_shares_settle(struct mix_shares *shares, uint32_t stretch, const uint64_t *counts)
{
    struct mix_stretch *s = &shares->stretches[stretch];

    assert(stretch > 0);
    for (uint32_t i = 0; i < shares->n; i++)
        s->base[i] =
            s->era ? mix_units_of(counts[i]) : mix_shares_at(shares, stretch - 1, i, s->begin);
}

uint32_t mix_shares_stretch(const struct mix_shares *shares, uint64_t position)
{
    return (uint32_t)BISECT(1, shares->n_stretches, i, shares->stretches[i].begin <= position) - 1;
}

uint32_t mix_shares_era(const struct mix_shares *shares, uint32_t stretch)
{
    while (!shares->stretches[stretch].era)
        stretch--;
    return stretch;
}

/* ---- shares ---------------------------------------------------------------------------------- */

static mix_units mix_shares_base(const struct mix_stretch *stretch, uint32_t child)
{
    return stretch->base ? stretch->base[child] : 0;
}

mix_units mix_shares_at(const struct mix_shares *shares, uint32_t stretch, uint32_t child,
                        uint64_t t)
{
    const struct mix_stretch *s = &shares->stretches[stretch];
    uint64_t done = t - s->begin;

    assert(t >= s->begin && t <= s->end);
    mix_units share = mix_shares_base(s, child) + s->from[child] * done;
    if (s->ramp && done > 1)
        share += (mix_units)(s->climbs[child] * (__int128)((mix_units)done * (done - 1) / 2));
    return share;
}

mix_units mix_shares_weight(const struct mix_shares *shares, uint32_t stretch, uint32_t child,
                            uint64_t position)
{
    const struct mix_stretch *s = &shares->stretches[stretch];

    if (!s->ramp)
        return s->from[child];
    return s->from[child] + (mix_units)(s->climbs[child] * (__int128)(position - s->begin));
}

/* Searches one stretch, whose end is known to reach it. */
static uint64_t mix_shares_bisect(const struct mix_shares *shares, uint32_t stretch, uint32_t child,
                                  mix_units wanted)
{
    const struct mix_stretch *s = &shares->stretches[stretch];

    return BISECT(s->begin, s->end, i, mix_shares_at(shares, stretch, child, i) < wanted);
}

static uint64_t mix_shares_reach_in(const struct mix_shares *shares, uint32_t stretch,
                                    uint32_t child, mix_units wanted)
{
    const struct mix_stretch *s = &shares->stretches[stretch];

    if (wanted <= mix_shares_base(s, child))
        return s->begin;
    if (mix_shares_at(shares, stretch, child, s->end) < wanted)
        return MIX_NEVER;
    if (s->ramp)
        return mix_shares_bisect(shares, stretch, child, wanted);
    return s->begin +
           (uint64_t)((wanted - mix_shares_base(s, child) + s->from[child] - 1) / s->from[child]);
}

uint64_t mix_shares_reach(const struct mix_shares *shares, uint32_t stretch, uint32_t child,
                          mix_units wanted)
{
    uint64_t t = mix_shares_reach_in(shares, stretch, child, wanted);

    while (t == MIX_NEVER && ++stretch < shares->n_stretches && !shares->stretches[stretch].era)
        t = mix_shares_reach_in(shares, stretch, child, wanted);
    return t;
}
