/* Sound at another rate: beside the filter's formula, and of any part. */
#include "daemon/data/decode/audio/audio_resample.h"
#include "tests/lib/harness.h"

#include <math.h>

/* The filter of audio_resample.h, as one would write it down. */
static double reference(const float *in, int64_t n, double from, double to, int64_t i)
{
    double least = from < to ? from : to, cutoff = least * 0.99, sum = 0;

    for (int64_t k = 0; k < n; k++) {
        double t = ((double)k / from - (double)i / to) * cutoff;
        if (fabs(t) >= 6)
            continue;
        double sinc = t == 0 ? 1 : sin(M_PI * t) / (M_PI * t);
        sum += (double)in[k] * sinc * pow(cos(M_PI * t / 12), 2) * cutoff / from;
    }
    return sum;
}

TEST(test_rates)
{
    static const struct {
        uint32_t from, to;
        uint64_t n, length;
    } rows[] = {
        {44100, 16000, 2000, 726}, {16000, 44100, 300, 827}, {8000, 16000, 100, 200},
        {48000, 8000, 600, 100},   {8000, 11025, 1, 2},      {7, 1000, 3, 429},
        {768000, 1000, 5000, 7},   {99991, 96001, 50, 49},   {16000, 22050, 0, 0},
    };
    float in[5000], out[1000], part[5];

    for (int i = 0; i < 5000; i++)
        in[i] = (float)(sin(i * 0.37) * 0.6 + (i * 7919 % 1000) / 2500.0 - 0.2);
    for (size_t row = 0; row < ARRAY_SIZE(rows); row++) {
        struct audio_resampler r;
        uint64_t n = rows[row].n, first, end;
        assert_int_equal(audio_resampler_init(&r, rows[row].from, rows[row].to), 0);
        assert_int_equal(audio_resampler_length(&r, n), rows[row].length);
        struct audio_span span = {.data = in, .n = n, .stride = 1};
        audio_resampler_run(&r, &span, 0, rows[row].length, out, 1);
        for (uint64_t i = 0; i < rows[row].length; i++) {
            double want = reference(in, (int64_t)n, rows[row].from, rows[row].to, (int64_t)i);
            assert_true(fabs((double)out[i] - want) < 1e-7);
        }
        /* Of any part, to the bit, from what it says that it needs. */
        for (uint64_t i = 0; i + 5 <= rows[row].length; i += 3) {
            audio_resampler_needs(&r, n, i, 5, &first, &end);
            assert_true(first <= end && end <= n);
            span = (struct audio_span){
                .data = in + first, .first = first, .n = end - first, .stride = 1};
            audio_resampler_run(&r, &span, i, 5, part, 1);
            assert_memory_equal(part, out + i, sizeof part);
        }
        audio_resampler_deinit(&r);
    }
}

/* A tone stays what it was; one that the new rate cannot have is gone. */
TEST(test_tones)
{
    enum { N = 4410 };
    static float in[N], out[N];
    struct audio_resampler r;

    assert_int_equal(audio_resampler_init(&r, 44100, 16000), 0);
    for (int tone = 0; tone < 2; tone++) {
        double hertz = tone ? 12000 : 1000, wrong = 0;
        for (int i = 0; i < N; i++)
            in[i] = (float)sin(2 * M_PI * hertz * i / 44100);
        struct audio_span span = {.data = in, .n = N, .stride = 1};
        audio_resampler_run(&r, &span, 0, 1600, out, 1);
        for (int i = 100; i < 1500; i++)
            wrong =
                fmax(wrong, fabs((double)out[i] - (tone ? 0 : sin(2 * M_PI * hertz * i / 16000))));
        assert_true(wrong < 0.01);
    }
    audio_resampler_deinit(&r);
}
