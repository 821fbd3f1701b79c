/* The digest: known answer, stability, and sensitivity to every part of a batch. */
#include "client/dlctl/run/digest.h"
#include "client/dlctl/run/stats.h"
#include "tests/lib/harness.h"

#include <math.h>
#include <stdio.h>
#include <xxhash.h>

/* A batch {"image": uint8 [2, 3], "label": int64 [2]} whose parts tests change. */
struct sample_batch {
    uint64_t step;
    uint64_t indices[2];
    size_t samples;
    uint64_t nodes;
    struct digest_node dict;
    struct digest_node image;
    struct digest_node label;
    uint64_t image_shape[2];
    uint64_t label_shape[1];
    uint8_t pixels[6];
    int64_t labels[2];
};

static void fill(struct sample_batch *b)
{
    *b = (struct sample_batch){
        .step = 7,
        .indices = {11, 4},
        .samples = 2,
        .nodes = 3,
        .image_shape = {2, 3},
        .label_shape = {2},
        .pixels = {1, 2, 3, 4, 5, 6},
        .labels = {0, 9},
    };
    b->dict = (struct digest_node){.kind = 2, .children = 2};
    b->image = (struct digest_node){.kind = 1,
                                    .key = "image",
                                    .key_len = 5,
                                    .dtype = 2,
                                    .ndim = 2,
                                    .shape = b->image_shape,
                                    .data = b->pixels,
                                    .nbytes = 6};
    b->label = (struct digest_node){.kind = 1,
                                    .key = "label",
                                    .key_len = 5,
                                    .dtype = 9,
                                    .ndim = 1,
                                    .shape = b->label_shape,
                                    .data = b->labels,
                                    .nbytes = 16};
}

static void feed(struct digest *digest, const struct sample_batch *b)
{
    digest_batch(digest, b->step, b->indices, b->samples, b->nodes);
    digest_node(digest, &b->dict);
    digest_node(digest, &b->image);
    digest_node(digest, &b->label);
}

static const char *digest_of(const struct sample_batch *b, int times)
{
    static char texts[4][DIGEST_TEXT];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    struct digest *digest = NULL;

    assert_int_equal(digest_new(&digest), 0);
    for (int i = 0; i < times; i++)
        feed(digest, b);
    digest_text(digest, text);
    assert_null(digest_free(digest));
    return text;
}

TEST(test_empty)
{
    char want[DIGEST_TEXT], have[DIGEST_TEXT];
    struct digest *digest = NULL;

    assert_int_equal(digest_new(&digest), 0);
    digest_text(digest, have);
    snprintf(want, sizeof want, "%016llx", (unsigned long long)XXH3_64bits("", 0));
    assert_string_equal(have, want);
    assert_string_equal(have, "2d06800538d394c2"); /* XXH3-64 of nothing, as published */
    digest_free(digest);
}

/* The bytes that digest.h documents, put together by hand and hashed at once. */
TEST(test_documented_bytes)
{
    struct sample_batch b;
    uint8_t bytes[512];
    size_t n = 0;
    char want[DIGEST_TEXT];

    fill(&b);
#define PUT(type, ...)                        \
    do {                                      \
        const type part[] = {__VA_ARGS__};    \
        memcpy(bytes + n, part, sizeof part); \
        n += sizeof part;                     \
    } while (0)
    PUT(uint64_t, 7, 2, 11, 4, 3);
    PUT(uint32_t, 2, 2, 0, 0, 0);
    PUT(uint64_t, 0);
    PUT(uint32_t, 1, 0, 5, 2, 2);
    PUT(char, 'i', 'm', 'a', 'g', 'e');
    PUT(uint64_t, 2, 3, 6);
    PUT(uint8_t, 1, 2, 3, 4, 5, 6);
    PUT(uint32_t, 1, 0, 5, 9, 1);
    PUT(char, 'l', 'a', 'b', 'e', 'l');
    PUT(uint64_t, 2, 16);
    PUT(int64_t, 0, 9);
    snprintf(want, sizeof want, "%016llx", (unsigned long long)XXH3_64bits(bytes, n));
    assert_string_equal(digest_of(&b, 1), want);
}

TEST(test_sensitive)
{
    struct sample_batch plain, b;

    fill(&plain);
    assert_string_equal(digest_of(&plain, 1), digest_of(&plain, 1));
    assert_string_not_equal(digest_of(&plain, 1), digest_of(&plain, 2));
#define CHANGED(change)                                                  \
    do {                                                                 \
        fill(&b);                                                        \
        change;                                                          \
        assert_string_not_equal(digest_of(&b, 1), digest_of(&plain, 1)); \
    } while (0)
    CHANGED(b.step = 8);
    CHANGED(b.indices[1] = 5);
    CHANGED(b.samples = 1);
    CHANGED(b.nodes = 4);
    CHANGED(b.dict.kind = 3);
    CHANGED(b.dict.children = 1);
    CHANGED(b.image.key = "imagf");
    CHANGED(b.image.key_len = 4);
    CHANGED(b.image.dtype = 3);
    CHANGED(b.image_shape[0] = 3);
    CHANGED(b.image.ndim = 1);
    CHANGED(b.image.nbytes = 5);
    for (size_t i = 0; i < sizeof b.pixels; i++)
        CHANGED(b.pixels[i] ^= 1);
    CHANGED(b.labels[1] = 8);
}

/* Bytes that move between the end of one tensor and the start of the next are seen. */
TEST(test_boundaries)
{
    static const uint8_t DATA[] = {1, 2, 3, 4};
    uint64_t shapes[2][2] = {{1, 3}, {2, 2}};
    char text[2][DIGEST_TEXT];

    for (int i = 0; i < 2; i++) {
        struct digest *digest = NULL;

        assert_int_equal(digest_new(&digest), 0);
        digest_batch(digest, 0, NULL, 0, 2);
        for (int t = 0; t < 2; t++)
            digest_node(digest, &(struct digest_node){.kind = 1,
                                                      .dtype = 2,
                                                      .ndim = 1,
                                                      .shape = &shapes[i][t],
                                                      .data = DATA + (t ? shapes[i][0] : 0),
                                                      .nbytes = shapes[i][t]});
        digest_text(digest, text[i]);
        digest_free(digest);
    }
    assert_string_not_equal(text[0], text[1]);
}

/* {"s": [b"ab", b"c"]}: the numbers and the strings, as documented; each is seen. */
TEST(test_text)
{
    uint64_t numbers[] = {0, 2, 3};
    uint8_t leaf[sizeof numbers + 3] = {0};
    char texts[4][DIGEST_TEXT], want[DIGEST_TEXT];
    const uint64_t shape[] = {2};
    uint8_t bytes[256];
    size_t n = 0;

    for (int i = 0; i < 4; i++) {
        struct digest *digest = NULL;

        numbers[1] = i == 1 ? 1 : 2;
        memcpy(leaf, numbers, sizeof numbers);
        memcpy(leaf + sizeof numbers, i == 2 ? "abd" : "abc", 3);
        assert_int_equal(digest_new(&digest), 0);
        digest_batch(digest, 7, NULL, 0, 1);
        digest_node(digest, &(struct digest_node){.kind = i == 3 ? 5 : 6,
                                                  .ndim = 1,
                                                  .shape = shape,
                                                  .data = leaf,
                                                  .nbytes = sizeof leaf});
        digest_text(digest, texts[i]);
        digest_free(digest);
    }
    PUT(uint64_t, 7, 0, 1);
    PUT(uint32_t, 6, 0, 0, 0, 1);
    PUT(uint64_t, 2, 27, 0, 2, 3);
    PUT(char, 'a', 'b', 'c');
    snprintf(want, sizeof want, "%016llx", (unsigned long long)XXH3_64bits(bytes, n));
    assert_string_equal(texts[0], want);
    for (int i = 1; i < 4; i++)
        assert_string_not_equal(texts[0], texts[i]);
}

TEST(test_free_null)
{
    assert_null(digest_free(NULL));
}

/* ---- the statistics that `check` prints beside it ------------------------------------------- */

#define STATS(number, type, ...)                                  \
    do {                                                          \
        const type data[] = {__VA_ARGS__};                        \
        assert_true(tensor_stats(number, data, sizeof data, &s)); \
    } while (0)

static void assert_stats(const struct stats *s, double min, double max, double mean)
{
    assert_true(s->min == min && s->max == max && fabs(s->mean - mean) < 1e-9);
}

TEST(test_stats)
{
    struct stats s;

    STATS(DL_DTYPE_BOOL, uint8_t, 0, 1, 1, 0);
    assert_stats(&s, 0, 1, 0.5);
    STATS(DL_DTYPE_UINT8, uint8_t, 255, 0, 9);
    assert_stats(&s, 0, 255, 88);
    STATS(DL_DTYPE_INT8, int8_t, -128, 127);
    assert_stats(&s, -128, 127, -0.5);
    STATS(DL_DTYPE_UINT16, uint16_t, 65535);
    assert_stats(&s, 65535, 65535, 65535);
    STATS(DL_DTYPE_INT16, int16_t, -5, 5);
    assert_stats(&s, -5, 5, 0);
    STATS(DL_DTYPE_UINT32, uint32_t, UINT32_MAX, 1);
    assert_stats(&s, 1, UINT32_MAX, 2147483648.0);
    STATS(DL_DTYPE_INT32, int32_t, INT32_MIN, 0);
    assert_stats(&s, INT32_MIN, 0, -1073741824.0);
    STATS(DL_DTYPE_UINT64, uint64_t, 1ull << 63);
    assert_stats(&s, 9223372036854775808.0, 9223372036854775808.0, 9223372036854775808.0);
    STATS(DL_DTYPE_INT64, int64_t, -3, 3, 6);
    assert_stats(&s, -3, 6, 2);
    STATS(DL_DTYPE_FLOAT32, float, 0.5f, -1.5f);
    assert_stats(&s, -1.5, 0.5, -0.5);
    STATS(DL_DTYPE_FLOAT64, double, 1e300, 1e300);
    assert_stats(&s, 1e300, 1e300, 1e300);
    /* 1, -2, 65504 (the largest), 2^-24 (the smallest above 0). */
    STATS(DL_DTYPE_FLOAT16, uint16_t, 0x3c00, 0xc000, 0x7bff, 0x0001);
    assert_stats(&s, -2, 65504, (1 - 2 + 65504 + ldexp(1, -24)) / 4);
    STATS(DL_DTYPE_FLOAT16, uint16_t, 0x7c00, 0xfc00 & 0x8000);
    assert_true(isinf(s.max) && s.min == 0);
    STATS(DL_DTYPE_BFLOAT16, uint16_t, 0x3f80, 0xc040); /* 1, -3 */
    assert_stats(&s, -3, 1, -1);
}

TEST(test_stats_nan)
{
    struct stats s;

    STATS(DL_DTYPE_FLOAT32, float, 1, NAN, 3);
    assert_true(isnan(s.min) && isnan(s.max) && isnan(s.mean));
    STATS(DL_DTYPE_FLOAT16, uint16_t, 0x7e00);
    assert_true(isnan(s.mean));
}

TEST(test_stats_none)
{
    static const uint8_t zeros[16];
    struct stats s;

    assert_false(tensor_stats(DL_DTYPE_COMPLEX64, zeros, 16, &s));
    assert_false(tensor_stats(DL_DTYPE_COMPLEX128, zeros, 16, &s));
    assert_false(tensor_stats(DL_DTYPE_UINT8, zeros, 0, &s));
    assert_false(tensor_stats(0, zeros, 16, &s));
    assert_false(tensor_stats(99, zeros, 16, &s));
}

TEST(test_stats_unaligned)
{
    uint8_t bytes[9] = {0};
    double d = 2.5;
    struct stats s;

    memcpy(bytes + 1, &d, sizeof d);
    assert_true(tensor_stats(DL_DTYPE_FLOAT64, bytes + 1, 8, &s));
    assert_stats(&s, 2.5, 2.5, 2.5);
}
