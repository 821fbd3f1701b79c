/* The filter: against one worked out in floating point, and its invariants. */
#include "daemon/data/decode/resize/resample.h"
#include "tests/lib/harness.h"

#include <math.h>

struct one {
    struct resample_axis axis;
    struct resample_ring ring;
};

static void one_deinit(struct one *one)
{
    resample_axis_deinit(&one->axis);
    resample_ring_deinit(&one->ring);
}

static uint8_t noise(uint32_t i)
{
    i = (i ^ 61) * 0x9e3779b1U;
    return (uint8_t)((i ^ i >> 13) * 0x85ebca6bU >> 24);
}

/* The mean that the triangle makes of `input`, which is 0..high. */
static double wanted(const struct resample_span *span, uint32_t i, double (*input)(uint32_t))
{
    double scale = span->length / span->outputs, support = scale > 1 ? scale : 1;
    uint32_t at = span->first + (span->mirror ? span->n - 1 - i : i);
    double centre = span->begin + (at + 0.5) * scale, sum = 0, total = 0;

    for (uint32_t x = span->low; x < span->high; x++) {
        double share = 1 - fabs(x + 0.5 - centre) / support;
        if (share > 0) {
            sum += share * input(x);
            total += share;
        }
    }
    return sum / total;
}

static double noise_input(uint32_t x)
{
    return noise(x);
}

static const struct resample_span spans[] = {
    {.length = 7, .high = 7, .outputs = 7, .n = 7},
    {.length = 500, .high = 500, .outputs = 224, .n = 224},
    {.length = 500, .high = 500, .outputs = 224, .n = 224, .mirror = true},
    {.length = 100, .high = 100, .outputs = 224, .n = 224},
    {.length = 375, .high = 375, .outputs = 300, .first = 11, .n = 77},
    {.begin = 10.5, .length = 90.25, .low = 10, .high = 101, .outputs = 50, .n = 50},
    {.begin = 33, .length = 66, .low = 33, .high = 99, .outputs = 33, .n = 33, .mirror = true},
    {.length = 1, .high = 1, .outputs = 9, .n = 9},
    {.length = 9, .high = 9, .outputs = 1, .n = 1},
    {.length = 3000, .high = 3000, .outputs = 2, .n = 2},
    {.length = 3000, .high = 3000, .outputs = 5000, .first = 4000, .n = 1000},
    {.length = 20, .high = 20, .outputs = 21, .n = 21},
    {.length = 12, .high = 12, .outputs = 16, .n = 16},
};

static void test_weights(void **state)
{
    struct one one = {0};

    for (size_t s = 0; s < ARRAY_SIZE(spans); s++) {
        assert_int_equal(resample_axis_set(&one.axis, &spans[s]), 0);
        assert_int_equal(one.axis.n, spans[s].n);
        assert_int_equal(one.axis.taps % 2, 0);
        assert_int_equal(one.axis.most % 2, 0);
        assert_in_range(one.axis.most, 2, one.axis.taps);
        assert_true(one.axis.begin >= spans[s].low && one.axis.end <= spans[s].high);
        for (uint32_t i = 0; i < one.axis.n; i++) {
            int32_t sum = 0;
            assert_in_range(one.axis.count[i], 1, one.axis.most);
            assert_in_range(one.axis.from[i], one.axis.begin, one.axis.end - one.axis.count[i]);
            for (uint32_t t = 0; t < one.axis.taps; t++) {
                int16_t weight = one.axis.weights[i * one.axis.taps + t];
                assert_true(weight >= 0 && (weight == 0 || t < one.axis.count[i]));
                sum += weight;
            }
            assert_int_equal(sum, 1 << one.axis.bits);
        }
    }
    one_deinit(&one);
}

static void test_across(void **state)
{
    enum { WIDEST = 3000 };
    static uint8_t row[(WIDEST + 6010) * 4 + RESAMPLE_SLACK];
    static uint8_t packed[5000 * 3 + RESAMPLE_SLACK], planar[sizeof packed];
    struct one one = {0};

    for (size_t s = 0; s < ARRAY_SIZE(spans); s++) {
        uint32_t origin = spans[s].low / 2, n = spans[s].n;
        assert_int_equal(resample_axis_set(&one.axis, &spans[s]), 0);
        memset(row, 99, sizeof row);
        for (uint32_t x = origin; x < spans[s].high; x++) {
            for (uint32_t c = 0; c < 3; c++)
                row[(x - origin) * 4 + c] = (uint8_t)(noise(x) ^ (c == 1 ? 255 : 0));
        }
        resample_across(&one.axis, row, origin, false, packed);
        resample_across(&one.axis, row, origin, true, planar);
        for (uint32_t i = 0; i < n; i++) {
            double want = wanted(&spans[s], i, noise_input);
            assert_true(fabs(packed[i * 3] - want) <= 0.6);
            assert_true(fabs(packed[i * 3 + 1] - (255 - want)) <= 0.6);
            assert_int_equal(packed[i * 3], packed[i * 3 + 2]);
            for (uint32_t c = 0; c < 3; c++)
                assert_int_equal(planar[c * n + i], packed[i * 3 + c]);
        }
    }
    one_deinit(&one);
}

/* Rows of 1 to 70 bytes: all of the block, its end, and less than one. */
static void test_down(void **state)
{
    struct one one = {0};

    for (size_t s = 0; s < ARRAY_SIZE(spans); s++) {
        struct resample_span span = spans[s];
        span.mirror = false; /* rows come from the top */
        assert_int_equal(resample_axis_set(&one.axis, &span), 0);
        for (size_t bytes = 1; bytes < 70; bytes += bytes < 18 ? 1 : 17) {
            uint8_t out[80];
            uint32_t made = 0;
            assert_int_equal(resample_ring_set(&one.ring, &one.axis, bytes + 1), 0);
            for (uint32_t y = one.axis.begin; y < one.axis.end; y++) {
                uint8_t *row = resample_ring_row(&one.ring, y);
                for (size_t x = 0; x < bytes + 1; x++)
                    row[x] = (uint8_t)(noise(y) ^ (x % 3 ? 255 : 0));
                for (; made < span.n && one.axis.from[made] + one.axis.count[made] <= y + 1;
                     made++) {
                    double want = wanted(&span, made, noise_input);
                    memset(out, 77, sizeof out);
                    resample_down(&one.axis, made, &one.ring, 1, bytes, out);
                    for (size_t x = 0; x < bytes; x++)
                        assert_true(fabs(out[x] - ((x + 1) % 3 ? 255 - want : want)) <= 0.6);
                    assert_int_equal(out[bytes], 77);
                }
            }
            assert_int_equal(made, span.n);
        }
    }
    one_deinit(&one);
}

/* Any surface that is even stays so, at both ends of the range. */
static void test_even_surfaces(void **state)
{
    static uint8_t row[10000 * 4], out[5000 * 3 + RESAMPLE_SLACK];
    struct one one = {0};

    for (size_t s = 0; s < ARRAY_SIZE(spans); s++) {
        assert_int_equal(resample_axis_set(&one.axis, &spans[s]), 0);
        for (int value = 0; value < 256; value += 51) {
            memset(row, value, sizeof row);
            resample_across(&one.axis, row, 0, false, out);
            for (size_t i = 0; i < (size_t)spans[s].n * 3; i++)
                assert_int_equal(out[i], value);
        }
    }
    one_deinit(&one);
}

static void test_nothing_to_do_changes_nothing(void **state)
{
    uint8_t row[40 * 4], out[37 * 3 + RESAMPLE_SLACK];
    struct resample_span span = {.length = 37, .high = 37, .outputs = 37, .n = 37};
    struct one one = {0};

    for (size_t i = 0; i < sizeof row; i++)
        row[i] = noise((uint32_t)i);
    assert_int_equal(resample_axis_set(&one.axis, &span), 0);
    resample_across(&one.axis, row, 0, false, out);
    for (size_t i = 0; i < 37; i++)
        assert_memory_equal(out + i * 3, row + i * 4, 3);
    one_deinit(&one);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_weights),
    cmocka_unit_test(test_across),
    cmocka_unit_test(test_down),
    cmocka_unit_test(test_even_surfaces),
    cmocka_unit_test(test_nothing_to_do_changes_nothing),
};
TEST_MAIN(tests)
