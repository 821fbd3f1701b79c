/*
 * Resampling of pixel rows: bilinear with antialiasing.
 *
 * Each output pixel is the mean of the input around its place, weighted by a triangle whose half
 * width is one input pixel, or, where the image gets smaller, one output pixel. That is the filter
 * of PIL's resize(BILINEAR) and of torchvision's antialias=True. Both directions are done one
 * after the other, across first; between them values are rounded to 8 bits, as PIL does.
 *
 * Weights are 16-bit fixed point of as many binary places as the greatest of them leaves room for,
 * and those of one output add up to 1 exactly: an even surface stays even. Pure.
 */
#ifndef DL_DATA_RESAMPLE_H
#define DL_DATA_RESAMPLE_H

#include "proto/common/base.h"

/* From `length` of input, from `begin` on, to `outputs`; of those, `n` are made, from `first` on.
 * Input outside [low, high) is not there: `begin` and its end lie within. */
struct resample_span {
    double begin;
    double length;
    uint32_t low;
    uint32_t high;
    uint32_t outputs;
    uint32_t first;
    uint32_t n;
    bool mirror; /* the last output comes first */
};

/* The weights of one direction; all zero: none yet. */
struct resample_axis {
    uint32_t n;       /* outputs */
    uint32_t taps;    /* room for the weights of each; even; those that are not needed are 0 */
    uint32_t most;    /* the greatest count, rounded up to an even number; ≤ taps */
    uint32_t begin;   /* all inputs with a weight lie in [begin, end) */
    uint32_t end;     /* */
    unsigned bits;    /* binary places of a weight */
    uint32_t *from;   /* owned; of each output: its first input, absolute */
    uint32_t *count;  /* owned; of each output: inputs that may have a weight, 1..taps */
    int16_t *weights; /* owned; n × taps */
    float *shares;    /* owned; n × taps: the weights while they are made */
    size_t room;      /* entries of from and count */
    size_t tap_room;  /* entries of weights and shares */
};

/* Works the weights out. -ENOMEM; the axis is then as empty as before its first use. */
int _nodiscard_ resample_axis_set(struct resample_axis *axis, const struct resample_span *span);
void resample_axis_deinit(struct resample_axis *axis);

/* Bytes that may be read behind a row of `pixels`, whatever they hold, and written behind `out`. */
enum { RESAMPLE_SLACK = 16 };

/*
 * Across: one row of R, G, B and a byte that does not matter for each pixel, the first of which is
 * input `origin`, to axis->n pixels: RGB, or all R, all G, all B. Reads axis->most pixels from each
 * output's first input on, which may be beyond `end`.
 */
void resample_across(const struct resample_axis *axis, const uint8_t *row, uint32_t origin,
                     bool planar, uint8_t *out);

/*
 * The rows that outputs to come are made of: input row y stays until row y + rows takes its place,
 * which is after the last output that needs it, if outputs are made as soon as they can be.
 */
struct resample_ring {
    uint8_t *data; /* owned; rows × row_bytes */
    size_t room;
    uint32_t rows;
    size_t row_bytes;
    const uint8_t **order; /* owned; rows + 1: those of one output */
    size_t order_room;
};

/* Room for rows of `bytes`, as many as one output of `axis` needs. -ENOMEM; it is then empty. */
int _nodiscard_ resample_ring_set(struct resample_ring *ring, const struct resample_axis *axis,
                                  size_t bytes);
void resample_ring_deinit(struct resample_ring *ring);

static inline uint8_t *resample_ring_row(const struct resample_ring *ring, uint32_t y)
{
    return ring->data + (size_t)(y % ring->rows) * ring->row_bytes;
}

/* Down: `n` bytes of output row `i`, made of bytes [from, from + n) of the rows it depends on. */
void resample_down(const struct resample_axis *axis, uint32_t i, const struct resample_ring *ring,
                   size_t from, size_t n, uint8_t *out);

#endif
