#include "daemon/data/decode/audio/audio_resample.h"

#include <assert.h>
#include <errno.h>

/* torchaudio's defaults: lowpass_filter_width, and rolloff as a fraction. */
enum { CROSSINGS = 6, ROLLOFF_ABOVE = 99, ROLLOFF_BELOW = 100 };
enum { AUDIO_LANES = 4, AUDIO_TABLE_MAX = 1 << 20 /* numbers: 8 MiB */ };

#define PI 3.14159265358979323846

/* ---- the filter ----------------------------------------------------------------------------- */

/* sin(πx) for |x| ≤ 1/2, by its series: the C libraries' sines differ in their last bit. */
static double audio_resample_small_sine(double x)
{
    double y = PI * x, square = y * y, term = y, sum = y;

    for (int k = 2; k <= 26; k += 2) {
        term *= -square / (k * (k + 1));
        sum += term;
    }
    return sum;
}

static double audio_resample_floor(double x)
{
    double whole = (double)(int64_t)x;

    return whole > x ? whole - 1 : whole;
}

static double audio_resample_sine(double x)
{
    double whole = audio_resample_floor(x + 0.5);
    double sine = audio_resample_small_sine(x - whole);

    return (int64_t)whole % 2 == 0 ? sine : -sine;
}

/* The Hann-windowed sinc at `t`, in crossings. */
static double audio_resample_filter(double t)
{
    double u = (t < 0 ? -t : t) / (2 * CROSSINGS);

    if (u >= 0.5)
        return 0;
    double window = audio_resample_small_sine(0.5 - u);
    double sinc = u > 0 ? audio_resample_sine(t) / (PI * t) : 1;
    return sinc * window * window;
}

/* The row of one phase: what frame p·from/to + k - reach of the source counts in the result. */
static void audio_resample_make_row(const struct audio_resampler *r, uint32_t phase, double *row)
{
    uint32_t least = r->from < r->to ? r->from : r->to;
    double cutoff = (double)least * ROLLOFF_ABOVE / ROLLOFF_BELOW; /* in periods of both rates */
    double scale = cutoff / r->from;
    uint64_t centre = (uint64_t)phase * r->from;
    int64_t rest = (int64_t)(centre % r->to);

    for (uint32_t k = 0; k < r->taps; k++) {
        int64_t away = ((int64_t)k - (int64_t)r->reach) * (int64_t)r->to - rest;
        double t = (double)away / ((double)r->from * r->to) * cutoff;
        row[k] = audio_resample_filter(t) * scale;
    }
}

/* ---- a resampler ---------------------------------------------------------------------------- */

static uint32_t audio_resample_divisor(uint32_t a, uint32_t b)
{
    while (b > 0) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int audio_resampler_init(struct audio_resampler *r, uint32_t from, uint32_t to)
{
    assert(from > 0 && to > 0 && from < 1U << 20 && to < 1U << 20);
    uint32_t divisor = audio_resample_divisor(from, to);
    *r = (struct audio_resampler){.from = from / divisor, .to = to / divisor};
    uint64_t least = (uint64_t)ROLLOFF_ABOVE * (r->from < r->to ? r->from : r->to);
    r->reach = (uint32_t)((CROSSINGS * (uint64_t)ROLLOFF_BELOW * r->from + least - 1) / least);
    r->taps = (2 * r->reach + 2 + AUDIO_LANES - 1) / AUDIO_LANES * AUDIO_LANES;
    r->has_all = (uint64_t)r->to * r->taps <= AUDIO_TABLE_MAX;
    r->rows = calloc((size_t)(r->has_all ? r->to : 1) * r->taps, sizeof *r->rows);
    if (!r->rows)
        return -ENOMEM;
    for (uint32_t phase = 0; r->has_all && phase < r->to; phase++)
        audio_resample_make_row(r, phase, r->rows + (size_t)phase * r->taps);
    return 0;
}

void audio_resampler_deinit(struct audio_resampler *r)
{
    free(r->rows);
    *r = (struct audio_resampler){0};
}

uint64_t audio_resampler_length(const struct audio_resampler *r, uint64_t n)
{
    assert(n < UINT64_C(1) << 40);
    return (n * r->to + r->from - 1) / r->from;
}

/* The frame of the source that is at frame `i` of the result, or just before it. */
static uint64_t audio_resample_centre(const struct audio_resampler *r, uint64_t i)
{
    return i / r->to * r->from + i % r->to * r->from / r->to;
}

void audio_resampler_needs(const struct audio_resampler *r, uint64_t length, uint64_t first,
                           uint64_t n, uint64_t *ret_first, uint64_t *ret_end)
{
    uint64_t begin = audio_resample_centre(r, first);
    uint64_t end = audio_resample_centre(r, first + max_u64(n, 1) - 1) + r->taps;

    *ret_first = min_u64(begin > r->reach ? begin - r->reach : 0, length);
    *ret_end = max_u64(min_u64(end, length), *ret_first);
}

/* Four sums, so that they need not wait for each other. */
static double audio_resample_whole_sum(const double *row, const float *in, size_t stride,
                                       uint32_t taps)
{
    double sums[AUDIO_LANES] = {0};

    for (uint32_t k = 0; k < taps; k += AUDIO_LANES)
        for (uint32_t lane = 0; lane < AUDIO_LANES; lane++)
            sums[lane] += row[k + lane] * (double)in[(k + lane) * stride];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* The same at the ends of what there is: silence counts as numbers do. */
static double audio_resample_cut_sum(const double *row, const struct audio_span *in, int64_t begin,
                                     uint32_t taps)
{
    double sums[AUDIO_LANES] = {0};

    for (uint32_t k = 0; k < taps; k++) {
        int64_t at = begin + (int64_t)k;
        if (at >= 0 && at < (int64_t)in->n)
            sums[k % AUDIO_LANES] += row[k] * (double)in->data[(size_t)at * in->stride];
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

static const double *audio_resample_row(struct audio_resampler *r, uint32_t phase)
{
    if (r->has_all)
        return r->rows + (size_t)phase * r->taps;
    audio_resample_make_row(r, phase, r->rows);
    return r->rows;
}

void audio_resampler_run(struct audio_resampler *r, const struct audio_span *in, uint64_t first,
                         uint64_t n, float *out, uint32_t stride)
{
    for (uint64_t i = 0; i < n; i++) {
        const double *row = audio_resample_row(r, (uint32_t)((first + i) % r->to));
        int64_t begin =
            (int64_t)audio_resample_centre(r, first + i) - (int64_t)r->reach - (int64_t)in->first;
        bool whole = begin >= 0 && (uint64_t)begin + r->taps <= in->n;
        double sum = whole ? audio_resample_whole_sum(row, in->data + (size_t)begin * in->stride,
                                                      in->stride, r->taps)
                           : audio_resample_cut_sum(row, in, begin, r->taps);
        out[i * stride] = (float)sum;
    }
}
