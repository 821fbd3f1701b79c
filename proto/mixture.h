/*
 * How the datasets of a mixture share its samples, as in the spec (dataset.kind mix): a list of
 * points, each with a step and the weights from there on. Pure data.
 */
#ifndef DL_MIXTURE_H
#define DL_MIXTURE_H

#include "proto/common/base.h"
#include "proto/limits.h"

/* A weight above 0 is at least the sum of all divided by this: finding a position of the order
 * takes up to twice as many steps (daemon/plan/mix_order.h), in places that must not block. */
#define DL_MIX_LEAST_SHARE 16384

#define MIX_POSITIONS      (UINT64_C(1) << 46) /* positions of an order lie below */

enum mix_stop {
    MIX_STOP_FIRST = 1, /* where the first dataset's share is all its samples */
    MIX_STOP_ALL,       /* where every dataset's share is all its samples, or more */
    MIX_STOP_NEVER,     /* epochs of `length` samples, each continuing where the last one ended */
};

/* What has these shares. */
enum mix_by { MIX_BY_SAMPLES = 1, MIX_BY_TOKENS };

/* Within a sample of it, or by chance. */
enum mix_draw { MIX_DRAW_EXACT = 1, MIX_DRAW_RANDOM };

struct mix_point {
    uint64_t step;   /* the first one's is 0, and each one's is above that of the one before */
    double *weights; /* one for each dataset: finite, none below 0, not all 0 */
    bool ramp;       /* they move in a straight line from those of the point before to these; not
                        the first one */
};

struct mix_schedule {
    uint32_t n;                     /* datasets: 1 to DL_MAX_MIX_CHILDREN */
    uint32_t n_points;              /* 1 to DL_MAX_MIX_POINTS */
    const struct mix_point *points; /* borrowed */
    uint64_t step_samples;          /* samples of all ranks in a step; 0 where there is one point */
};

#endif
