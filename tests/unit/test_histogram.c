/* Lengths: quantiles, ranges, and how they are drawn. */
#include "client/dlctl/run/histogram.h"
#include "tests/lib/harness.h"

#include <stdlib.h>

static uint32_t *count_up(uint64_t n)
{
    uint32_t *lengths = calloc(n, sizeof *lengths);

    assert_non_null(lengths);
    for (uint64_t i = 0; i < n; i++)
        lengths[i] = (uint32_t)i + 1;
    return lengths;
}

/* Nearest rank: of lengths 1, 2, … n the quantile is its rank. */
TEST(test_quantiles)
{
    static const struct {
        uint64_t n;
        uint32_t per_mille, want;
    } rows[] = {
        {1, 0, 1},         {1, 500, 1},        {1, 1000, 1},      {2, 500, 1},
        {2, 501, 2},       {3, 500, 2},        {9, 950, 9},       {10, 900, 9},
        {10, 901, 10},     {1000, 999, 999},   {1001, 999, 1000}, {2500, 500, 1250},
        {2500, 999, 2498}, {2500, 1000, 2500},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ uint32_t *lengths = count_up(rows[i].n);
        uint32_t got = lengths_quantile(lengths, rows[i].n, rows[i].per_mille);

        if (got != rows[i].want)
            fail_msg("%u thousandths of %llu: %u, not %u", rows[i].per_mille,
                     (unsigned long long)rows[i].n, got, rows[i].want);
    }
}

TEST(test_spread)
{
    static const uint32_t lengths[] = {1, 2, 3, 3, 4, 5, 6, 8, 20};
    struct spread s;

    spread_of(lengths, ARRAY_SIZE(lengths), &s);
    assert_int_equal(s.min, 1);
    assert_int_equal(s.median, 4);
    assert_int_equal(s.p95, 20);
    assert_int_equal(s.p99, 20);
    assert_int_equal(s.max, 20);
    assert_int_equal(s.tokens, 52);
    assert_float_equal(s.mean, 52.0 / 9, 1e-12);
}

TEST(test_ranges)
{
    /* Of lengths 1, 2, … n: the rows' greatest lengths, which are their counts added up. */
    static const struct {
        uint64_t n;
        uint32_t top, first, last_but_one, last, n_rows;
    } rows[] = {
        {1, 0, 1, 0, 1, 1},          {1, 512, 1, 0, 1, 1},         {20, 0, 1, 19, 20, 20},
        {21, 0, 2, 20, 21, 11},      {100, 50, 3, 50, 100, 18},    {100, 100, 5, 95, 100, 20},
        {100, 1000, 5, 95, 100, 20}, {1000, 0, 50, 999, 1000, 21}, {40, 1, 1, 1, 40, 2},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        _cleanup_free_ uint32_t *lengths = count_up(rows[i].n);
        struct histogram h;
        uint64_t all = 0;

        histogram_of(lengths, rows[i].n, rows[i].top, &h);
        if (h.n_rows != rows[i].n_rows)
            fail_msg("row %zu: %u rows", i, h.n_rows);
        for (uint32_t r = 0; r < h.n_rows; r++) {
            assert_int_equal(h.rows[r].from, r ? h.rows[r - 1].to + 1 : 1);
            assert_int_equal(h.rows[r].count, h.rows[r].to - h.rows[r].from + 1);
            all += h.rows[r].count;
        }
        assert_int_equal(all, rows[i].n);
        assert_int_equal(h.rows[0].to, rows[i].first);
        assert_int_equal(h.rows[h.n_rows - 1].to, rows[i].last);
        if (h.n_rows > 1)
            assert_int_equal(h.rows[h.n_rows - 2].to, rows[i].last_but_one);
    }
}

TEST(test_greatest_lengths)
{
    static const uint32_t lengths[] = {1, UINT32_MAX - 1, UINT32_MAX};
    struct histogram h;
    uint64_t all = 0;

    for (uint32_t top = 0; top < 2; top++) {
        histogram_of(lengths, 3, top ? UINT32_MAX : 7, &h);
        for (uint32_t r = all = 0; r < h.n_rows; r++)
            all += h.rows[r].count;
        assert_int_equal(all, 3);
        assert_int_equal(h.rows[h.n_rows - 1].to, UINT32_MAX);
    }
}

static void assert_drawn(const struct histogram *h, int columns, bool utf8, const char *want)
{
    char *text = NULL;
    size_t len;
    FILE *file = open_memstream(&text, &len);

    assert_non_null(file);
    histogram_draw(file, h, columns, utf8);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(text, want);
    free(text);
}

TEST(test_drawing)
{
    static const struct histogram h = {
        .rows = {{1, 1, 160}, {2, 90, 0}, {91, 180, 77}, {181, 270, 1}, {271, 9000, 11}},
        .n_rows = 5,
    };
    static const struct histogram one = {.rows = {{1, 5, 12345678}}, .n_rows = 1};

    assert_drawn(&h, 45, true,
                 "  LENGTH  SAMPLES   SHARE\n"
                 "       1      160     64 %  █████████████████\n"
                 "    2-90        0      0 %\n"
                 "  91-180       77     31 %  ████████▏\n"
                 " 181-270        1    0.4 %  ▏\n"
                 "271-9000       11    4.4 %  █▏\n");
    assert_drawn(&h, 45, false,
                 "  LENGTH  SAMPLES   SHARE\n"
                 "       1      160     64 %  #################\n"
                 "    2-90        0      0 %\n"
                 "  91-180       77     31 %  ########\n"
                 " 181-270        1    0.4 %  #\n"
                 "271-9000       11    4.4 %  #\n");
    /* Where there is no room, some is taken. */
    assert_drawn(&one, 3, false,
                 "LENGTH   SAMPLES   SHARE\n"
                 "   1-5  12345678    100 %  ########\n");
}
