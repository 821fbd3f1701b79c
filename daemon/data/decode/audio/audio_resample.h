/*
 * Sound at another rate: band-limited interpolation by a windowed sinc (J. O. Smith, "Digital Audio
 * Resampling", ccrma.stanford.edu/~jos/resample), with the filter that torchaudio's resample() has
 * by default: 6 zero crossings, a roll-off of 0.99, and a Hann window. So a model's features stay
 * what they were; results differ by 5e-5 at most, as torchaudio's phases are float32.
 *
 * The same bits on every machine: nothing but sums, products and quotients of doubles, in one
 * order, sines included. Pure but for the memory of a resampler. Not thread-safe.
 */
#ifndef DL_DATA_AUDIO_RESAMPLE_H
#define DL_DATA_AUDIO_RESAMPLE_H

#include "proto/common/base.h"

struct audio_resampler {
    uint32_t from;  /* this many frames become */
    uint32_t to;    /* this many; they have no common divisor */
    uint32_t reach; /* frames on either side that one of the result is made of */
    uint32_t taps;  /* numbers in a row of the filter, a multiple of 4 */
    double *rows;   /* owned; of all `to` phases, or of one */
    bool has_all;
};

/* Some frames of a sound: data[0] is frame `first`; those it has not, are silence. */
struct audio_span {
    const float *data; /* borrowed */
    uint64_t first;
    uint64_t n;      /* frames */
    uint32_t stride; /* floats from one frame to the next */
};

/* From `from` to `to` frames a second, both at least 1 and below 2^20. -ENOMEM. */
int _nodiscard_ audio_resampler_init(struct audio_resampler *r, uint32_t from, uint32_t to);
void audio_resampler_deinit(struct audio_resampler *r); /* zeroes it; a zeroed one is fine */

/* How many frames `n` < 2^40 become: n·to/from, rounded up. */
uint64_t audio_resampler_length(const struct audio_resampler *r, uint64_t n);

/* Which frames of a sound of `length` the frames first..first+n-1 of the result are made of. */
void audio_resampler_needs(const struct audio_resampler *r, uint64_t length, uint64_t first,
                           uint64_t n, uint64_t *ret_first, uint64_t *ret_end);

/* Frames first..first+n-1 of the result, out[i·stride] each. */
void audio_resampler_run(struct audio_resampler *r, const struct audio_span *in, uint64_t first,
                         uint64_t n, float *out, uint32_t stride);

#endif
